"""Moments of several ranks are counted from the same zero."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor  # noqa: E402
from torch import distributed as dist  # noqa: E402
from torch.testing._internal.distributed.fake_pg import FakeStore  # noqa: E402

from executor.run import strategy_run  # noqa: E402
from executor.run.part import RankPart  # noqa: E402
from executor.strategies.clock import clock_of_ranks  # noqa: E402
from executor.strategies.work import Work  # noqa: E402
from executor.training.update_rule import OptimizerConfig  # noqa: E402
from parsim.launch.options import RunOptions  # noqa: E402
from parsim.plan import Plan  # noqa: E402
from parsim.plan.strategies import Gossip  # noqa: E402

CPU = torch.device("cpu")


@pytest.fixture
def second(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Be rank 1 of two, 5 s behind rank 0 at the barrier; what it was asked for."""
    asked: list[str] = []

    def broadcast(zero: Tensor, src: int) -> None:
        asked.append("broadcast")
        zero.fill_(100.0)

    dist.init_process_group("fake", store=FakeStore(), rank=1, world_size=2)
    monkeypatch.setattr(dist, "barrier", lambda: asked.append("barrier"))
    monkeypatch.setattr(dist, "broadcast", broadcast)
    monkeypatch.setattr(time, "perf_counter", lambda: 105.0)
    yield asked
    monkeypatch.undo()
    dist.destroy_process_group()


def test_ranks_of_a_machine_have_the_zero_of_the_first(
    second: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    assert clock_of_ranks(CPU)() == 5.0
    assert second == ["barrier", "broadcast"]


def test_a_run_is_timed_by_the_clock_of_all_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not by one that began when this rank had built its model."""
    nothing: Any = None
    work = Work(
        plan=Plan(dp_replicate=2, strategy=Gossip()),
        replica=nothing,
        batches=lambda _, __: (torch.ones(1), torch.ones(1)),
        config=OptimizerConfig(),
        rounds=1,
        clock=time.perf_counter,
    )
    begun = SimpleNamespace(predicted=None, device=CPU, rank=1)
    timed: list[float] = []

    def train(work: Work) -> None:
        timed.append(work.clock())
        raise KeyboardInterrupt

    monkeypatch.setattr(strategy_run, "started", lambda *_: nullcontext(begun))
    monkeypatch.setattr(strategy_run, "strategy_work", lambda _: work)
    monkeypatch.setattr(strategy_run, "seed_dropout", lambda *_: None)
    monkeypatch.setattr(strategy_run, "clock_of_ranks", lambda _: lambda: 42.0)
    monkeypatch.setattr(strategy_run, "train", train)
    monkeypatch.setattr(RankPart, "of", lambda *_: SimpleNamespace(device=CPU))
    with pytest.raises(KeyboardInterrupt):
        strategy_run.run_strategy(nothing, nothing, RunOptions())
    assert timed == [42.0]


def test_machines_count_from_behind_the_barrier_each(
    second: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "1")
    assert clock_of_ranks(CPU)() == 0.0
    assert second == ["barrier"]
