"""`parsim run` of a plan with a strategy: the document, the replay, what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("torch")

from executor.strategies.log import Applied
from executor.strategies.session import Measured
from parsim.cli.app import main
from tests.executor.launch import fork_runs
from tests.executor.running import SCENARIO

STRATEGY = SCENARIO.replace("seq_len: 32,", "seq_len: 32, dropout: false,").replace(
    "pp: 2, microbatch_size: 2, schedule: 1f1b", "{plan}"
)


def scenario(folder: Path, strategy: str) -> Path:
    path = folder / "tiny.yaml"
    path.write_text(STRATEGY.replace("{plan}", f"microbatch_size: 2, strategy: {strategy}"))
    return path


@pytest.mark.distributed
@pytest.mark.parametrize("strategy", ["asynchronous_server", "{name: local_sgd, every: 2}"])
def test_a_strategy_is_run_and_verified(
    strategy: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    fork_runs(monkeypatch, tmp_path)
    path, out = scenario(tmp_path, strategy), tmp_path / "out"
    words = ["--steps", "4", "--warmup", "1", "--verify", "--out", str(out), "--json"]
    assert main(["run", str(path), *words]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document == json.loads((out / "run.json").read_text())
    assert document["verify"]["within"]
    assert len(document["measured"]["loss"]) == 5
    samples = [point["samples"] for point in document["strategy"]["curve"]]
    assert samples == [4.0 * (number + 1) for number in range(10)]
    if "asynchronous" in strategy:
        assert document["strategy"]["replay_error"] == 0.0
        assert len(document["strategy"]["order"]) == 10


def test_a_rate_is_that_of_all_workers_between_the_warm_up_and_the_first_end() -> None:
    """One worker has a round a second, the other one every two: 3 of 2 workers' in 2 seconds."""
    fast = [(float(second), 1.0) for second in range(1, 6)]
    slow = [(2.0 * second, 3.0) for second in range(1, 6)]
    measured = Measured([fast, slow], [Applied(0, 0, 0)], 1, 8)
    assert measured.losses == [2.0] * 5
    assert measured.step_time == pytest.approx(2 * 3.0 / 4)
    assert measured.seconds == [2.0] * 4
    assert [point["samples"] for point in measured.curve()][:2] == [4.0, 8.0]
