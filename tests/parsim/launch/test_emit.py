"""Scripts of a run: golden texts, what bash thinks of them, and how many nodes they start."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from parsim.cluster.reader import load_catalog
from parsim.errors import InputError, ScenarioError
from parsim.launch.emit import Script, emit, nodes_for, sbatch_script, torchrun_script
from parsim.launch.nodes import Nodes
from parsim.launch.options import RunOptions
from parsim.scenario import load_scenario
from tests.commands import ROOT

GOLDEN = ROOT / "tests" / "golden"
SCENARIOS = ROOT / "scenarios"
RACK = {"cluster.system": "gb200-nvl72", "cluster.devices_per_node": "8"}
DGX = load_catalog().systems["dgx-h100"]

ONE = Script(
    label="tp1 pp2 dp1 mb1 m4 1f1b",
    world_size=2,
    nodes=Nodes(),
    devices_per_host=2,
    on_cpu=True,
    out=Path("build/my run"),
    words=["scenario.yaml", "--out=build/my run", "--set=plan.stage_layers=[5, 7]"],
    restarts=["--max-restarts=2"],
)
MANY = replace(
    ONE,
    label="tp8 pp2 dp1 mb1 m4 1f1b",
    world_size=16,
    nodes=Nodes(count=2),
    devices_per_host=8,
    on_cpu=False,
    words=["scenario.yaml", "--out=build/run", "--nnodes=2"],
    out=Path("build/run"),
    restarts=[],
    name="parsim-0123456789ab",
)
LOCAL = replace(ONE, nodes=Nodes(count=2, endpoint="127.0.0.1:29400"))
SCRIPTS = {
    "run_one_node": torchrun_script(ONE),
    "run_two_nodes": torchrun_script(MANY),
    "run_sbatch": sbatch_script(MANY),
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_golden(name: str) -> None:
    assert SCRIPTS[name] == (GOLDEN / f"{name}.sh").read_text(encoding="utf-8")


@pytest.mark.parametrize("text", [*SCRIPTS.values(), torchrun_script(LOCAL), sbatch_script(ONE)])
def test_bash_can_read_it(text: str) -> None:
    done = subprocess.run(["bash", "-n"], input=text, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def started(text: str, folder: Path, **environment: str) -> tuple[list[str], str]:
    """What a script starts, with a program that prints its arguments in the place of Python."""
    program = folder / "python"
    program.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    program.chmod(0o755)
    done = subprocess.run(
        ["bash", "-c", text],
        cwd=folder,
        capture_output=True,
        text=True,
        env={"PATH": os.environ["PATH"], "PYTHON": str(program), **environment},
    )
    return done.stdout.splitlines(), done.stderr


AWKWARD = ["a b.yaml", "--data=it's", "--set=x=$(id)", '--set=y="`id`"', "--set=z=\\", "--set=é*"]


def test_arguments_arrive_as_they_were(tmp_path: Path) -> None:
    script = replace(ONE, words=AWKWARD, out=Path("o $HOME"))
    words, told = started(torchrun_script(script), tmp_path)
    assert told == ""
    assert words[words.index("executor") + 1 :] == AWKWARD
    assert (tmp_path / "o $HOME").is_dir()


def test_an_earlier_document_is_gone_before_the_start(tmp_path: Path) -> None:
    (tmp_path / ONE.out).mkdir(parents=True)
    (tmp_path / ONE.out / "run.json").write_text("old")
    started(torchrun_script(ONE), tmp_path)
    assert not (tmp_path / ONE.out / "run.json").exists()


def test_a_script_for_several_nodes_asks_where_they_meet(tmp_path: Path) -> None:
    words, told = started(torchrun_script(MANY), tmp_path)
    assert words == []
    assert "set it to HOST:PORT of one node, the same on all" in told
    words, told = started(torchrun_script(MANY), tmp_path, RDZV_ENDPOINT="node0:29400")
    assert told == ""
    assert words[:4] == ["-m", "parsim.launch.lock", "build/run", "parsim-0123456789ab"]
    assert words[7:10] == ["--nnodes=2", "--rdzv-backend=c10d", "--rdzv-endpoint=node0:29400"]


def test_an_endpoint_that_was_given_is_in_the_script(tmp_path: Path) -> None:
    words, _ = started(torchrun_script(LOCAL), tmp_path)
    assert "--rdzv-endpoint=127.0.0.1:29400" in words
    assert "--local-addr=127.0.0.1" in words
    assert "GLOO_SOCKET_IFNAME" in torchrun_script(LOCAL)


def test_the_nodes_of_a_job_meet_on_its_first(tmp_path: Path) -> None:
    for name, text in {"scontrol": "seq 3 | sed s/^/n/", "srun": 'shift 2; exec "$@"'}.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    job = {"SLURM_JOB_NODELIST": "n[1-3]", "SLURM_JOB_ID": "123456"}
    words, told = started(sbatch_script(MANY), tmp_path, **job, PATH=path)
    assert told == ""
    assert "--rdzv-endpoint=n1:23456" in words
    assert "--rdzv-id=123456" in words


def test_a_job_on_cpus_asks_for_no_gpus() -> None:
    text = sbatch_script(ONE)
    assert "--gpus" not in text
    assert "#SBATCH --cpus-per-task=2\n" in text
    assert "scontrol" not in text


def test_a_shared_gpu_is_asked_for_once() -> None:
    assert "--gpus-per-node=1\n" in sbatch_script(replace(MANY, devices_per_host=1))


def test_a_job_knows_its_own_endpoint() -> None:
    with pytest.raises(InputError, match="--rdzv-endpoint=n:1 is unknown before Slurm has chosen"):
        sbatch_script(replace(MANY, nodes=Nodes(count=2, endpoint="n:1")))


@pytest.mark.parametrize(
    ("world_size", "nodes"), [(1, 1), (8, 1), (9, 3), (16, 2), (11, 11), (24, 3), (20, 4)]
)
def test_the_fewest_nodes_that_hold_equal_shares(world_size: int, nodes: int) -> None:
    assert nodes_for(world_size, DGX, None) == Nodes(count=nodes)


def test_nodes_that_were_asked_for() -> None:
    four = Nodes(count=4)
    assert nodes_for(8, DGX, four) is four
    with pytest.raises(InputError) as refused:
        nodes_for(64, DGX, four)
    assert str(refused.value) == (
        "--nnodes=4 puts 16 ranks on a node, but dgx-h100 has 8 devices a node; use --nnodes 8 or "
        "more, or --oversubscribe"
    )
    assert nodes_for(64, DGX, four, oversubscribe=True) is four
    with pytest.raises(InputError, match="--nnodes=4 does not divide world size 6"):
        nodes_for(6, DGX, four)


def test_a_rack_of_one_nvlink_domain_has_hosts_of_four() -> None:
    rack = load_catalog().systems["gb200-nvl72"]
    assert nodes_for(72, rack, None) == Nodes(count=18)
    assert nodes_for(4, rack, None) == Nodes(count=1)
    with pytest.raises(InputError, match="gb200-nvl72 has 4 devices a host; use --nnodes 2 or"):
        nodes_for(8, rack, Nodes(count=1))
    job = load_scenario(SCENARIOS / "llama3-8b-dgx-h100.yaml", RACK)
    options = RunOptions(out=Path("out"))
    script = emit("sbatch", job, options)
    assert "#SBATCH --nodes=2\n" in script
    assert "#SBATCH --gpus-per-node=4\n" in script
    assert "--nproc-per-node=4 " in script


@pytest.mark.parametrize(("host", "node", "together"), [(4, 8, 4), (8, 8, 8), (4, 2, 2)])
def test_hosts_of_a_node(tmp_path: Path, host: int, node: int, together: int) -> None:
    path = tmp_path / "box.yaml"
    start = "" if host <= node else ", devices_per_host: null"
    path.write_text(
        f"systems:\n  wide: {{from: dgx-h100, devices_per_node: 8, devices_per_host: {host}}}\n"
        f"  box: {{from: wide, devices_per_node: {node}{start}}}\n"
    )
    assert load_catalog([path]).systems["box"].launched_together == together


def test_hosts_that_do_not_share_a_node_equally(tmp_path: Path) -> None:
    path = tmp_path / "box.yaml"
    path.write_text("systems:\n  box: {from: dgx-h100, devices_per_host: 3}\n")
    message = "box.devices_per_host is 3, which does not divide devices_per_node=8; allowed: 1, 2, "
    with pytest.raises(ScenarioError, match=message):
        load_catalog([path]).system("box")
