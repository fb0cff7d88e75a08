"""Training that goes on after a killed and a stopped rank ends as if nothing had happened."""

from __future__ import annotations

import json
import os
import re
import signal
from pathlib import Path
from typing import Any

import pytest

from parsim.cli.app import main
from tests.executor.launch import fork_runs
from tests.executor.running import SCENARIO, Start

SHARDED = SCENARIO.replace(
    "{pp: 2, microbatch_size: 2, schedule: 1f1b}",
    "{dp_shard: 2, zero_stage: 3, microbatch_size: 2}",
)


@pytest.mark.distributed
@pytest.mark.parametrize(
    ("scenario", "stopped"), [(SCENARIO, 0), (SHARDED, 1)], ids=["pp", "zero3"]
)
def test_training_goes_on_after_a_killed_and_a_stopped_rank(
    start: Start, scenario: str, stopped: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("--steps", "60", "--timeout", "15")
    disturbed = start(*words, "--checkpoint-every", "5", "--max-restarts", "2", scenario=scenario)
    victim = disturbed.rank(1)
    first = disturbed.checkpoint(after=0)
    os.kill(victim, signal.SIGKILL)
    victim = disturbed.rank(stopped, attempt=1)
    disturbed.checkpoint(after=first + 5)
    os.kill(victim, signal.SIGSTOP)
    expected = undisturbed(tmp_path, scenario, words, monkeypatch)  # while the others wait
    code, told = disturbed.end(timeout=300.0)
    assert code == 0, told
    notes = [line for line in told if "restart" in line]
    went_on = r"at step \d+, action (step|checkpoint|\d[FB]\d)(.*); training goes on from step \d+"
    assert re.fullmatch(rf"note: rank 1 was killed by SIGKILL {went_on} \(restart 1\)", notes[0])
    assert re.fullmatch(
        rf"note: rank {stopped} gave no answer for --timeout=15 s {went_on} \(restart 2\)", notes[1]
    )
    assert not (disturbed.out / "errors").exists()
    result = json.loads((disturbed.out / "run.json").read_text())["measured"]
    assert (result["restarts"], expected["restarts"]) == (2, 0)
    assert result["step_time_s"]["n"] < expected["step_time_s"]["n"] == 60
    assert [f"{loss:.6g}" for loss in result["loss"]] == [f"{x:.6g}" for x in expected["loss"]]


def undisturbed(
    folder: Path, scenario: str, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> dict[str, Any]:
    """What the same run measures when nothing happens."""
    fork_runs(monkeypatch, folder)
    path, out = folder / "undisturbed.yaml", folder / "undisturbed"
    path.write_text(scenario)
    assert main(["run", str(path), "--out", str(out), "--warmup", "0", *words]) == 0
    result: dict[str, Any] = json.loads((out / "run.json").read_text())["measured"]
    return result
