"""`parsim run` before anything is started: plans it refuses, scripts it prints; without torch."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from parsim.cli.run import note_software
from parsim.launch.options import RunOptions
from parsim.scenario import load_scenario
from tests.commands import GPT3, SMALL, Cli, process, settings


@pytest.fixture(autouse=True)
def no_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch cannot be imported, as if it were not installed."""
    monkeypatch.setitem(sys.modules, "torch", None)


# --------------------------------------------------------------------------- refused


def test_without_torch_the_message_says_what_to_install(cli: Cli) -> None:
    assert cli("run", SMALL) == (
        2,
        "",
        "error: running a plan needs torch, which is not installed; install it with: pip "
        "install 'torch>=2.11'\n",
    )


GARBAGE = {
    "not YAML": (b"model: {name: gpt2\nplan: [", ":2:5 is not YAML: expected ',' or '}', but got"),
    "a list": (b"- plan", ":1:1 must be a mapping with the blocks model, cluster, training, and "),
    "empty": (b"", " is empty; a scenario has the blocks model, cluster, training, and plan or"),
    "binary": (b"\x00\x01\xff", ": is not UTF-8 text"),
}


@pytest.mark.parametrize("case", GARBAGE)
def test_a_file_that_is_no_plan(cli: Cli, tmp_path: Path, case: str) -> None:
    content, message = GARBAGE[case]
    path = tmp_path / "plan.yaml"
    path.write_bytes(content)
    done = cli("run", path)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(f"error: {path}{message}")


SPLIT = ("search.tp=2", "search.pp=1", "model.padded_vocab_size=50258")


@pytest.fixture
def best(cli: Cli, tmp_path: Path) -> Path:
    """What a search saved: GPT-2 small with two tensor-parallel ranks."""
    path = tmp_path / "best.yaml"
    done = cli("search", SMALL, "--save", path, *settings(*SPLIT))
    assert done.code == 0
    return path


@pytest.mark.parametrize("end", ["model:", "cluster:", "training:\n", "microbatch_s", "order: [pp"])
def test_a_plan_that_was_cut_off(cli: Cli, best: Path, end: str) -> None:
    before, result, _ = best.read_text().partition(end)
    best.write_text(before + result)
    done = cli("run", best)
    assert (done.code, done.out) == (2, "")
    assert re.match(rf"error: {re.escape(str(best))}:\d+:\d+ \S", done.err)


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        (["plan.tp=two"], "--set plan.tp=two plan.tp must be a whole number, got 'two'"),
        (["plan.stage_layers=5"], "--set plan.stage_layers=5 plan.stage_layers must be a list"),
        (["model=gpt2"], "--set model=gpt2 model must be a block of 'key: value' "),
        (
            ["model.name=gpt2-xl"],
            "{file}:16:3 plan tp=2 does not divide num_attention_heads=25; allowed: 1, 5, 25 (with "
            "--set model.name=gpt2-xl)",
        ),
        (
            [
                "model.name=gpt2-medium",
                "plan.tp=1",
                "plan.pp=2",
                "plan.microbatch_size=2",
                "plan.num_microbatches=2",
                "plan.sequence_parallel=false",
                "plan.stage_layers=[6,6]",
            ],
            "plan stage_layers sums to 12, but the model has 24 layers; entries must be >= 0 "
            "and sum "
            "to 24 (",
        ),
        (["model.name=gpt9"], "--set model.name=gpt9 model.name model 'gpt9' is not in the "),
        (["plan=null"], "{file}:1:1 has no plan block and no search block; add 'search: {}' to "),
    ],
)
def test_a_plan_for_another_model(cli: Cli, best: Path, pairs: list[str], message: str) -> None:
    done = cli("run", best, *settings(*pairs))
    assert (done.code, done.out) == (2, "")
    assert message.replace("{file}", str(best)) in done.err.splitlines()[-1]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--nnodes", 2], "--nnodes=2 needs --rdzv-endpoint HOST:PORT, the same on every node: "),
        (["--nnodes", 0], "--nnodes=0 must be at least 1"),
        (["--nnodes", 3, "--rdzv-endpoint", "a:1"], "--nnodes=3 does not divide world "),
        (["--nnodes", 2, "--rdzv-endpoint", "a"], "--rdzv-endpoint='a' is not HOST:PORT with "),
        (["--rdzv-endpoint", "a:1"], "--rdzv-endpoint=a:1 is where several nodes meet; "),
        (["--emit", "torchun"], "--emit=torchun is unknown (did you mean 'torchrun'?); "),
        (["--emit", "sbatch", "--json"], "--emit prints a script and --json a document; use "),
        (["--emit", "sbatch", "--nnodes", 2, "--rdzv-endpoint", "a:1"], "--rdzv-endpoint=a:1 is "),
    ],
)
def test_options_that_do_not_go_together(cli: Cli, words: list[object], message: str) -> None:
    done = cli("run", SMALL, *words)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(f"error: {message}")


# --------------------------------------------------------------------------- scripts


def test_the_nodes_of_a_script_follow_from_the_system(cli: Cli) -> None:
    done = cli("run", GPT3, "--emit", "sbatch")
    assert (done.code, done.err) == (0, "")
    for line in ("nodes=128", "ntasks-per-node=1", "cpus-per-task=8", "gpus-per-node=8"):
        assert f"\n#SBATCH --{line}\n" in done.out
    assert "    --nnodes=128" in done.out.splitlines()


def test_a_script_on_request_for_more_nodes(cli: Cli) -> None:
    done = cli("run", GPT3, "--emit", "torchrun", "--nnodes", 256, "--rdzv-endpoint", "n0:29400")
    assert "# tp8 pp8 dp16 mb1 m96 interleaved_1f1b v3 sp" in done.out
    assert "\nendpoint=n0:29400\n" in done.out
    assert "    --nproc-per-node=4 \\" in done.out.splitlines()


OPTIONS = [
    "--steps=4",
    "--warmup=1",
    "--seed=5",
    "--timeout=60.0",
    "--set=training.global_batch_size=8",
    "--data=my text.txt",
    "--tokenizer=t.json",
    "--device=cpu",
    "--verify",
    "--checkpoint-every=2",
    "--checkpoints=there",
    "--resume",
    "--oversubscribe",
]


def test_every_option_is_in_the_script(cli: Cli, tmp_path: Path) -> None:
    out = tmp_path / "out"
    script = cli("run", SMALL, f"--out={out}", *OPTIONS, "--max-restarts=3", "--emit=torchrun").out
    before, after = script.split("    -m executor")
    assert "    --max-restarts=3 \\" in before.splitlines()
    for word in [*OPTIONS, SMALL, f"--out={out}"]:
        assert word in after.replace("'", "")
    assert not out.exists()


def test_the_same_command_prints_the_same_script(cli: Cli) -> None:
    words = ["run", SMALL, "--emit", "torchrun", "--nnodes", "2"]
    assert cli(*words).out == process(*words).out
    other = cli(*words, "--seed", "1").out
    name = re.compile(r"--rdzv-id=(parsim-[0-9a-f]{12})")
    assert name.findall(other) != name.findall(cli(*words).out)


def test_ranks_of_a_cpu_may_share_its_cores(monkeypatch: pytest.MonkeyPatch, cli: Cli) -> None:
    started: list[tuple[int, RunOptions]] = []
    monkeypatch.setattr(
        "parsim.launch.launch.run_plan",
        lambda _path, ranks, options, _step: started.append((ranks, options)),
    )
    words = ("run", SMALL, "--set", "plan.pp=4", "--set", "training.global_batch_size=16")
    refused = cli(*words)
    assert refused.code == 2
    assert "world size mismatch: pp=4 x dp=1 x cp=1 x tp=1 = 4, but the clu" in refused.err
    done = cli(*words, "--oversubscribe")
    assert done.code == 0
    assert "devices_per_node=4 is more than the 2 of cpu: each rank is predicted with" in done.err
    [(ranks, options)] = started
    assert (ranks, options.overrides[-1]) == (4, "cluster.devices_per_node=4")


def test_more_devices_than_a_gpu_node_has_are_refused_with_oversubscribe_too(cli: Cli) -> None:
    done = cli("run", GPT3, "--set", "plan.tp=16", "--set", "plan.dp=4096", "--oversubscribe")
    assert done.code == 2
    assert "world size mismatch" in done.err


def test_other_software_than_what_runs_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    for stack, told in (("generic", True), ("executor-cpu", False)):
        note_software(load_scenario(SMALL, {"software": stack}))
        assert ("what runs is parsim's own executor" in capsys.readouterr().err) == told
