"""A link of so many bytes a second: one message behind the other, each way by itself."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

pytest.importorskip("torch")

from executor.strategies.compression import message_bytes
from executor.strategies.link import Link
from executor.strategy_suite.cases import LIMITED, RATE, limited_cases, limited_text
from executor.suite.cases import before_calibration
from parsim.plan.strategies import ParameterServer
from parsim.scenario import load_scenario


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A clock that stands still, and how long is slept."""
    lengths: list[float] = []
    monkeypatch.setattr(time, "perf_counter", lambda: 10.0)
    monkeypatch.setattr(time, "sleep", lengths.append)
    return lengths


def test_messages_of_a_way_stand_behind_one_another(slept: list[float]) -> None:
    link = Link(100.0)
    link.wait(received=50.0)
    link.wait(received=50.0)
    link.wait(sent=20.0)
    link.wait(received=100.0, sent=10.0, since=4.0)
    assert slept == pytest.approx([0.5, 1.0, 0.2, 2.0])


def test_what_was_hidden_behind_compute_is_not_waited_for(slept: list[float]) -> None:
    Link(100.0).wait(sent=50.0, since=9.4)
    Link().wait(sent=1e12)
    assert slept == []


def test_threads_share_a_link() -> None:
    link, begin = Link(1e6), time.perf_counter()
    threads = [threading.Thread(target=link.wait, kwargs={"received": 5e4}) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert time.perf_counter() - begin >= 0.2


@pytest.mark.parametrize(
    ("options", "size"),
    [({}, 400.0), ({"compression": 0.1}, 40.0),
     ({"compression": 0.5, "compressor": "half"}, 200.0)],
)  # fmt: skip
def test_bytes_of_a_packed_share(options: dict[str, object], size: float) -> None:
    assert message_bytes(ParameterServer(**options), 100) == size  # type: ignore[arg-type]


def test_every_limited_case_has_links_of_the_rate(tmp_path: Path) -> None:
    made = limited_cases()
    assert len(made) == 2 * len(LIMITED)
    for case in made[:: len(LIMITED) - 1]:
        path = tmp_path / "scenario.yaml"
        path.write_text(limited_text(case, before_calibration("cpu")), encoding="utf-8")
        scenario = load_scenario(path)
        assert scenario.job.system.intra.bandwidth * scenario.job.system.intra.efficiency == RATE
        assert not scenario.fixed_plan().overlap_grad_reduce
