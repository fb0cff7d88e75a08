"""`parsim run` on several nodes, all of them this machine; and its script, run by hand."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from executor.devices.capacity import check_world, largest_fitting
from executor.devices.machine import DeviceReport
from executor.faults.ports import free_port
from parsim.errors import InputError
from parsim.plan import Plan
from parsim.plan.stages import Stage
from tests.commands import process
from tests.executor.running import SCENARIO

ROOT = Path(__file__).parents[3]
STILL = SCENARIO.replace("positions: 32}", "positions: 32, dropout: false}")
NODE = DeviceReport(kind="cuda", backend="nccl", count=4, names=("H200",) * 4, shareable=False)
SECONDS = 600


def start(*words: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "parsim", *map(str, words)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(nodes: list[subprocess.Popen[str]]) -> list[tuple[int, str, str]]:
    """Exit code, stdout and stderr of each; none is left running."""
    try:
        texts = [node.communicate(timeout=SECONDS) for node in nodes]
        return [(node.returncode, *text) for node, text in zip(nodes, texts, strict=True)]
    finally:
        for node in nodes:
            if node.poll() is None:
                node.terminate()
                node.wait(30)


# --------------------------------------------------------------------------- what fits a node


def nodes_of(count: int) -> DeviceReport:
    return DeviceReport(
        kind="cuda", backend="nccl", count=4, names=("H200",) * 4, shareable=False, nodes=count
    )


def test_devices_are_counted_on_each_node() -> None:
    plan = Plan(tp=4, pp=2)
    check_world(plan, nodes_of(2), oversubscribe=False)
    with pytest.raises(
        InputError, match=r"world size 8 .* is more than the 4 GPUs of this machine"
    ):
        check_world(plan, nodes_of(1), oversubscribe=False)
    assert str(nodes_of(2)) == "2 nodes of 4 x cuda (H200), backend nccl"


def test_stages_of_their_own_are_told_by_their_replicas() -> None:
    plan = Plan(pp=2, stages=(Stage(layers=3, replicas=4), Stage(layers=1)))
    with pytest.raises(InputError) as refused:
        check_world(plan, nodes_of(1), oversubscribe=False)
    assert str(refused.value).startswith(
        "world size 5 (layers 3+1 on replicas 4+1) is more than the 4 GPUs of this machine; use "
        "stages whose replicas x tp sum to 4 at most; or "
    )


def test_a_share_that_does_not_fit_a_node() -> None:
    with pytest.raises(InputError) as refused:
        check_world(Plan(tp=4, pp=3), nodes_of(2), oversubscribe=False)
    assert str(refused.value).startswith(
        "world size 12 (pp=3 x dp=1 x cp=1 x tp=4) on 2 nodes, 6 on each, is more than the 4 GPUs "
        "of this machine; what fits: pp=3 x dp=1 x cp=1 x tp=2 = 6; or "
    )
    with pytest.raises(InputError, match="--nnodes=5 does not divide world size 12"):
        check_world(Plan(tp=4, pp=3), nodes_of(5), oversubscribe=False)


@pytest.mark.parametrize("nodes", [1, 2, 3, 4, 6, 12])
def test_what_fits_can_be_shared_out(nodes: int) -> None:
    result = largest_fitting(Plan(tp=4, pp=3), 2, nodes=nodes)
    assert result.world_size % nodes == 0
    assert result.world_size <= 2 * nodes


# --------------------------------------------------------------------------- launches


@pytest.mark.distributed
def test_two_nodes_train_like_one(scenario: Path, tmp_path: Path) -> None:
    outs = [tmp_path / "a", tmp_path / "b"]
    ran = two_nodes(scenario, outs)
    first = next(i for i, out in enumerate(outs) if (out / "run.json").exists())
    document: dict[str, Any] = json.loads((outs[first] / "run.json").read_text())
    assert not (outs[1 - first] / "run.json").exists()
    assert document["device"].startswith("2 nodes of ")
    assert "step time (median)" in ran[first][1]
    assert (outs[first] / "loss.png").read_bytes().startswith(b"\x89PNG")
    assert ran[1 - first][1] == ""
    assert ran[1 - first][2].splitlines()[-1] == (
        f"this node's ranks are done; rank 0 ran on another node and wrote {outs[1 - first]} there"
    )
    assert document["measured"]["loss"] == pytest.approx(by_hand(scenario, tmp_path), rel=1e-6)


@pytest.mark.distributed
def test_two_nodes_that_share_a_folder(scenario: Path, tmp_path: Path) -> None:
    ran = two_nodes(scenario, [tmp_path / "out"] * 2, *words_of(tmp_path))
    assert sorted(bool(text) for _, text, _ in ran) == [False, True]
    assert {path.name for path in (tmp_path / "out").iterdir()} >= {"run.json", "loss.png"}
    assert not (tmp_path / "out" / "errors").exists()


def words_of(folder: Path) -> list[object]:
    """Options for a text of three words, read with a tokenizer where its package is installed."""
    (folder / "text").write_text("the quick fox " * 99)
    if find_spec("tokenizers") is None:
        return ["--data", folder / "text"]
    model = {"type": "WordLevel", "vocab": {"the": 0, "quick": 1, "fox": 2}, "unk_token": "fox"}
    parts = dict.fromkeys(("truncation", "padding", "normalizer", "post_processor", "decoder"))
    document: dict[str, object] = {"version": "1.0", "added_tokens": [], "model": model, **parts}
    document["pre_tokenizer"] = {"type": "Whitespace"}
    (folder / "words.json").write_text(json.dumps(document))
    return ["--data", folder / "text", "--tokenizer", folder / "words.json"]


def two_nodes(scenario: Path, outs: list[Path], *words: object) -> list[tuple[int, str, str]]:
    """Both nodes are given one command, but for the folder."""
    meet = ["--nnodes", 2, "--rdzv-endpoint", f"127.0.0.1:{free_port()}", "--steps", 3]
    meet += ["--warmup", 1, *words]
    ran = finish([start("run", scenario, *meet, "--out", out) for out in outs])
    assert [code for code, *_ in ran] == [0, 0], ran
    return ran


def by_hand(scenario: Path, folder: Path) -> list[float]:
    """Losses of the same run on one node, started by the printed script."""
    words = ["--steps", 3, "--warmup", 1, "--out", folder / "my out"]
    script = process("run", scenario, *words, "--emit", "torchrun").out
    environment = {**os.environ, "PYTHON": sys.executable, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        ["bash"], input=script, env=environment, capture_output=True, text=True, timeout=SECONDS
    )
    assert done.returncode == 0, done.stderr
    assert "step time (median)" in done.stdout  # as `parsim run` tells it
    assert (folder / "my out" / "loss.png").read_bytes().startswith(b"\x89PNG")
    document = json.loads((folder / "my out" / "run.json").read_text())
    losses: list[float] = document["measured"]["loss"]
    assert len(losses) == 4
    return losses


@pytest.mark.distributed
def test_a_node_that_nobody_meets(scenario: Path, tmp_path: Path) -> None:
    endpoint = f"127.0.0.1:{free_port()}"
    words = ["--nnodes", 2, "--rdzv-endpoint", endpoint, "--timeout", 2, "--out", tmp_path / "out"]
    ((code, out, told),) = finish([start("run", scenario, *words)])
    assert (code, out) == (5, "")
    assert told.splitlines()[-1] == (
        f"error: no rank started: this node did not meet the others at {endpoint} within "
        f"--timeout=2 s; start the same command on all 2 nodes; the full log is "
        f"{tmp_path}/out/log.txt"
    )
