"""The command line on good input: documents, and what goes to which stream."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import parsim
from tests.commands import GPT3, LLAMA, ROOT, SCENARIOS, SMALL, Cli, process

COMMANDS = ("check", "simulate", "search", "timeline", "validate", "catalog")


# --------------------------------------------------------------------------- help and version


@pytest.mark.parametrize("flag", ["-h", "--help"])
@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help_is_a_result(cli: Cli, command: str, flag: str) -> None:
    done = cli(*filter(None, [command]), flag)
    assert (done.code, done.err) == (0, "")
    assert "Usage:" in done.out


def test_help_names_every_command(cli: Cli) -> None:
    assert all(f" {command} " in cli("--help").out for command in COMMANDS)


def test_no_arguments_show_the_help(cli: Cli) -> None:
    done = cli()
    assert (done.code, done.err) == (2, "")
    assert done.out.strip() == cli("--help").out.strip()


def test_version(cli: Cli) -> None:
    assert cli("--version") == (0, f"parsim {parsim.__version__}\n", "")


# --------------------------------------------------------------------------- check and catalog


def test_check_says_what_a_scenario_resolves_to(cli: Cli) -> None:
    done = cli("check", LLAMA)
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines() == [
        f"{LLAMA}: ok",
        "  model    llama3-8b: 8,030,261,248 parameters, 32 layers, 8192 tokens",
        "  cluster  1 x dgx-h100: 8 x h100-sxm-80gb",
        "  software torchtitan: torchtitan with FSDP2 and torch.compile where the row says so",
        "  batch    16 sequences per step",
        "  plan     tp1 pp1 dp8 mb1 m2 no-pipeline zero3",
    ]


def test_check_says_that_experts_are_run(cli: Cli) -> None:
    """The scenario's head has the command that runs it."""
    text = cli("check", str(ROOT / "scenarios" / "mixture-small-cpu.yaml")).out
    assert "  experts  4 of 16 for each token, which meets " in text
    assert "  run " not in text


def test_check_has_the_executors_reason_against_a_plan(cli: Cli) -> None:
    text = cli("check", LLAMA, "--set", "plan.precision=fp8").out
    assert "  run      no: precision='fp8': products of 8 bit or less are predicted" in text


def test_check_as_a_document(cli: Cli) -> None:
    document = cli("check", LLAMA, "--json").document
    assert document["schema_version"] == 1
    assert document["model"]["parameters"] == 8_030_261_248
    assert document["cluster"] == {
        "system": "dgx-h100",
        "nodes": 1,
        "devices": 8,
        "device": "h100-sxm-80gb",
    }
    assert document["plan"]["dp_shard"] == document["plan"]["world_size"] == 8


@pytest.mark.parametrize(
    ("kind", "entry"),
    [
        ("devices", "gb200"),
        ("systems", "gb200-nvl72"),
        ("models", "llama3.1-405b"),
        ("schedules", "interleaved_1f1b"),
        ("software", "megatron-2021"),
    ],
)
def test_catalogs(cli: Cli, kind: str, entry: str) -> None:
    rows = cli("catalog", kind, "--json").document[kind]
    printed = cli("catalog", kind)
    assert entry in [row["id"] for row in rows]
    assert all(row["id"] in printed.out for row in rows)
    assert (printed.code, printed.err) == (0, "")


# --------------------------------------------------------------------------- simulate


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda path: path.stem)
def test_every_shipped_scenario_has_a_step(cli: Cli, scenario: Path) -> None:
    done = cli("simulate", scenario, "--json")
    document = done.document
    assert (done.code, done.err) == (0, "")
    assert document["step_time_s"] == pytest.approx(sum(document["breakdown_s"].values()), rel=1e-9)
    assert max(document["peak_allocated_bytes"]) == pytest.approx(
        sum(document["memory_bytes"].values())
    )
    roles = document["plan"].get("strategy", {}).get("devices", 1)
    assert len(document["peak_allocated_bytes"]) == document["plan"]["pp"] * roles
    assert max(document["peak_allocated_bytes"]) < document["device_memory_bytes"]
    # transformed convolutions save FLOPs in fp32: MXNet's AlexNet takes 115 % of a V100's peak
    most = 1.2 if document["plan"]["precision"] == "fp32" else 1.0
    assert 0 < document["mfu"] <= document["hfu"] < most
    assert 0 <= document["bubble_fraction"] < 1


def test_more_than_the_peak_is_explained(cli: Cli) -> None:
    out = cli("simulate", ROOT / "scenarios" / "alexnet-one-weird-trick-dgx-1v.yaml").out
    assert "of direct convolutions, of which transforms save some" in " ".join(out.split())
    assert "direct convolutions" not in cli("simulate", SMALL).out


def test_the_document_of_simulate_is_the_contract(cli: Cli) -> None:
    document = cli("simulate", SMALL, "--json").document
    assert type(document["schema_version"]) is int
    assert type(document["plan"]) is dict
    for name in ("step_time_s", "tokens_per_s", "mfu", "hfu", "bubble_fraction", "bubble_overhead"):
        assert type(document[name]) is float, name
    assert [type(peak) for peak in document["peak_allocated_bytes"]] == [float, float]
    for name in ("breakdown_s", "memory_bytes"):
        assert {type(value) for value in document[name].values()} == {float}
    idle = document["bubble_fraction"]
    assert document["bubble_overhead"] == pytest.approx(idle / (1 - idle))
    assert document["tokens_per_s"] == pytest.approx(4 * 128 / document["step_time_s"])


def test_simulate_in_words(cli: Cli) -> None:
    done = cli("simulate", SMALL)
    document = cli("simulate", SMALL, "--json").document
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("tp1 pp2 dp1 mb1 m4 1f1b\n")
    assert f"step time {document['step_time_s']:.3f} s" in " ".join(done.out.split())
    assert "80 % interval" in done.out
    assert f"{100 * document['bubble_fraction']:.1f} % of the pipeline phase" in done.out
    assert "of 0 TFLOP/s" not in done.out


def test_the_event_tier_says_the_same(cli: Cli) -> None:
    plain = cli("simulate", SMALL, "--json").document
    events = cli("simulate", SMALL, "--events", "--json").document
    assert events["step_time_s"] == pytest.approx(plain["step_time_s"], rel=1e-12)


def test_a_field_can_be_set(cli: Cli) -> None:
    document = cli(
        "simulate",
        SMALL,
        "--json",
        "--set",
        "plan.schedule=gpipe",
        "--set",
        "training.global_batch_size=8",
    ).document
    assert document["plan"]["schedule"] == "gpipe"
    assert document["plan"]["num_microbatches"] == 8


def test_what_is_assumed_goes_to_stderr(cli: Cli) -> None:
    done = cli("simulate", SMALL, "--json", "--set", "software=null")
    assert done.err == "note: software is not stated: 'generic' is assumed\n"
    assert done.document == cli("simulate", SMALL, "--json", "--set", "software=generic").document


# --------------------------------------------------------------------------- search


def test_the_document_of_search_is_the_contract(cli: Cli) -> None:
    done = cli("search", SMALL, "--json", "--top", 200)
    result, counts = done.document, done.document["counts"]
    assert (done.code, done.err) == (0, "")
    told = {"counts", "illegal_reasons", "optimality", "left_out", "usable_memory_bytes", "axes"}
    assert set(result) - {"apart"} == {"schema_version", "plans", "faster_tight_plan", *told}
    assert sum(result["illegal_reasons"].values()) == counts["illegal"]
    kinds = {"illegal", "out_of_memory", "tight", "slower", "evaluated"}
    assert set(counts) == {"enumerated", *kinds}
    assert counts["enumerated"] == sum(counts[kind] for kind in kinds)
    # a plan is looked at with two cuts, and shown with the better one
    assert 20 < len(result["plans"]) <= min(counts["evaluated"], 200)
    for plan in result["plans"]:
        assert type(plan["plan"]) is dict
        for name in ("step_time_s", "mfu", "bubble_fraction", "peak_allocated_bytes"):
            assert type(plan[name]) is float
    times = [plan["step_time_s"] for plan in result["plans"]]
    assert times == sorted(times)
    assert type(result["optimality"]) is str


def test_search_in_words(cli: Cli) -> None:
    done = cli("search", SMALL, "--top", 3)
    counts = cli("search", SMALL, "--json", "--top", 3).document["counts"]
    assert done.code == 0
    # nothing was measured of this device, so that its plans cannot be told apart
    head = [line.split()[0] for line in done.out.split("\n\n")[0].splitlines()]
    assert head[0] == "#"
    assert set(head[1:]) <= {"1=", "also"}  # twins are folded into a line of their own
    assert "1= marks 3 plans in one another's 80 % interval" in " ".join(done.out.split())
    assert f"{counts['enumerated']} plans: {counts['illegal']} illegal; as far as" in done.out
    assert f"{counts['evaluated']} ranked" in done.out
    words = "stage_layers (cuts other than as even as possible and balanced by seconds)"
    assert words in " ".join(done.out.split())


def test_the_main_job_in_a_small_space(cli: Cli) -> None:
    space = {
        "tp": "8",
        "pp": "8",
        "microbatch_size": "[1, 2]",
        "zero_stage": "[0, 1]",
        "schedule": "[1f1b, interleaved_1f1b]",
        "v": "[1, 3]",
    }
    words = [word for key, value in space.items() for word in ("--set", f"search.{key}={value}")]
    document = cli("search", GPT3, "--json", "--top", 1000, *words).document
    counts = document["counts"]
    # mb 2 x (1f1b, interleaved v3) x zero 2 x recompute 3 x sequence parallelism 2
    assert counts["enumerated"] == 2 * 2 * 2 * 3 * 2
    assert counts["illegal"] == 0
    assert counts["out_of_memory"] > 0
    assert {plan["memory_fit"] for plan in document["plans"]} == {"fits"}
    assert len(document["plans"]) == counts["evaluated"] > 0
    published = cli("simulate", GPT3, "--json").document
    assert document["plans"][0]["step_time_s"] <= published["step_time_s"]


def test_the_main_job_is_recommended_what_its_stack_can_run(cli: Cli) -> None:
    """Megatron-LM of 2022 has no zero-bubble schedules, which would be faster."""
    space = {"tp": "8", "pp": "8", "microbatch_size": "4", "zero_stage": "1", "v": "[1, 2, 12]"}
    words = [word for key, value in space.items() for word in ("--set", f"search.{key}={value}")]
    done = cli("search", GPT3, *words)
    told = " ".join(done.out.split())
    assert "tp8 pp8 dp16 mb4 m24 interleaved_1f1b v12" in done.out.splitlines()[1]
    assert "zb_v" not in told.partition("not looked at")[0]
    assert "zb_v, v_half, v_min: megatron-2022 has none of them; search.schedule names them" in told
    named = ("--set", "search.schedule=[interleaved_1f1b, zb_v]")
    both = cli("search", GPT3, *words, *named).out
    assert "zb_v v2" in both.splitlines()[1]
    assert "megatron-2022 has none" not in both


def test_a_saved_plan_is_the_one_that_was_found(cli: Cli, tmp_path: Path) -> None:
    saved = tmp_path / "new" / "best.yaml"
    result = cli("search", LLAMA, "--json", "--save", saved, "--set", "search.tp=[1, 2]")
    best = result.document["plans"][0]
    again = cli("simulate", saved, "--json").document
    assert result.err == f"best plan written to {saved}\n"
    assert again["plan"] == best["plan"]
    assert again["step_time_s"] == pytest.approx(best["step_time_s"], rel=1e-12)
    assert again["bubble_fraction"] == pytest.approx(best["bubble_fraction"], abs=1e-12)
    peak = max(again["peak_allocated_bytes"])
    assert peak == pytest.approx(best["peak_allocated_bytes"], rel=1e-12)


def test_a_scenario_without_a_space_is_searched_whole(cli: Cli) -> None:
    whole = cli("search", SMALL, "--json", "--set", "search=null").document
    assert whole == cli("search", SMALL, "--json").document


def test_a_time_limit_is_told(cli: Cli) -> None:
    document = cli("search", SMALL, "--json", "--time-limit", 0).document
    assert document["optimality"].startswith("stopped by time limit after ")
    assert document["plans"]


# --------------------------------------------------------------------------- streams and bytes


@pytest.mark.parametrize("command", ["check", "simulate", "search"])
@pytest.mark.parametrize("flags", [(), ("--json",)])
def test_same_input_same_output(cli: Cli, command: str, flags: tuple[str, ...]) -> None:
    assert cli(command, SMALL, *flags) == cli(command, SMALL, *flags)


@pytest.mark.parametrize("suffix", ["png", "svg", "html", "json"])
def test_same_input_same_file(cli: Cli, tmp_path: Path, suffix: str) -> None:
    first, second = tmp_path / f"a.{suffix}", tmp_path / f"b.{suffix}"
    cli("timeline", SMALL, "-o", first)
    cli("timeline", SMALL, "-o", second)
    assert first.read_bytes() == second.read_bytes()


def test_a_process_says_the_same_without_colour(cli: Cli) -> None:
    done, again = process("search", SMALL), process("search", SMALL, COLUMNS="40")
    assert done == again == cli("search", SMALL)
    assert "\x1b" not in done.out + done.err


def test_a_process_ends_with_the_exit_code() -> None:
    done = process("check", "nowhere.yaml")
    assert done == (2, "", "error: nowhere.yaml: no such file\n")


def test_an_encoding_without_the_characters_is_enough() -> None:
    done = process("simulate", SMALL, PYTHONIOENCODING="ascii")
    assert done.code == 0
    assert "?" * 8 in done.out


@pytest.mark.parametrize("flags", [(), ("--json",)])
def test_a_reader_that_goes_away_is_no_error(flags: tuple[str, ...]) -> None:
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [sys.executable, "-m", "parsim", "catalog", "schedules", *flags],
        env=os.environ | {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": ""},
        stdout=write,
        stderr=subprocess.PIPE,
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (0, b"")
