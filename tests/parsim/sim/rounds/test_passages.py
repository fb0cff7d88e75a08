"""Queues told once where they are alike: times are those of queues served one by one."""

from __future__ import annotations

import numpy as np
import pytest

from parsim.arrays import Array
from parsim.sim.rounds import passages
from parsim.sim.rounds.passages import Passages, Passed, Span
from parsim.sim.rounds.rounds_end import RoundsEnd
from parsim.sim.rounds.run import run_rounds
from parsim.strategy.program import StepProgram
from parsim.strategy.task import Queue, Task, Waits

WORKERS, ROUNDS = 32, 12


Program = tuple[StepProgram, dict[str, Array]]


def _there_and_back(nodes: int, seconds: float, *, uneven: bool) -> Program:
    """Workers of several nodes that pass their node's wire, those of all others, and memories."""
    ranks, mine = tuple(range(WORKERS)), [worker * nodes // WORKERS for worker in range(WORKERS)]
    wires = [Queue(rows=tuple(f"out {node}" for node in mine), price="out")]
    wires += [
        Queue(rows=tuple(f"in {node}" if node != other else "" for other in mine), price="in")
        for node in range(nodes)
    ]
    memories = [
        Queue(rows=(f"memory {node}",), price=f"memory {node % 2 if uneven else 0}")
        for node in range(nodes)
    ]
    alone = Waits.RANK
    tasks = (
        Task(name="F", kind="F", ranks=ranks, price="compute", on_device=True, waits=alone),
        Task(name="B", kind="B", ranks=ranks, price="compute", on_device=True),
        Task(name="push", kind="PUSH", ranks=ranks, stream="send", price="wait", waits=alone,
             queues=tuple(wires)),
        Task(name="update", kind="UPDATE", ranks=ranks, stream="send", waits=alone,
             queues=tuple(memories), writes=True),
    )  # fmt: skip
    prices = {"compute": np.ones((1, 1)), "wait": np.full((1, 1), 0.01)}
    shares = {"out": nodes * seconds, "in": seconds, "memory 0": seconds, "memory 1": seconds / 3}
    prices |= {name: np.full((1, 1), value) for name, value in shares.items()}
    return StepProgram(tasks=tasks, ranks=WORKERS, rounds=ROUNDS, steps=ROUNDS), prices


def _one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Serve each queue of each turn by itself."""
    monkeypatch.setattr(passages, "SPAN_FROM", 10**9)
    monkeypatch.setattr(
        passages,
        "_stand_ins",
        lambda ways: {queue: queue for passed in ways for queue, _ in passed},
    )


@pytest.mark.parametrize("nodes", [4, 16, 32])
@pytest.mark.parametrize("seconds", [0.0005, 0.004, 0.05])
@pytest.mark.parametrize("uneven", [False, True])
def test_times_are_those_of_queues_served_one_by_one(
    nodes: int, seconds: float, uneven: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Idle, busy and saturated: bit-equal ends and orders, busy seconds to rounding."""
    program, prices = _there_and_back(nodes, seconds, uneven=uneven)
    slow = np.random.default_rng(nodes).normal(1.0, 0.1, (ROUNDS, WORKERS))
    fast = run_rounds(program, prices, slow=slow)
    _one_by_one(monkeypatch)
    plain = run_rounds(program, prices, slow=slow)
    assert np.array_equal(fast.finished, plain.finished)
    assert np.array_equal(fast.versions.time, plain.versions.time)
    assert np.array_equal(fast.versions.rank, plain.versions.rank)
    assert _busy(fast) == pytest.approx(_busy(plain), rel=1e-12)
    assert list(fast.busy) == list(plain.busy)


def test_kept_times_do_not_change_the_run() -> None:
    """With every task's times kept nothing is taken in one."""
    program, prices = _there_and_back(16, 0.004, uneven=False)
    slow = np.random.default_rng(0).normal(1.0, 0.1, (ROUNDS, WORKERS))
    kept = run_rounds(program, prices, slow=slow, keep=True)
    assert np.array_equal(kept.finished, run_rounds(program, prices, slow=slow).finished)
    assert len(kept.times) == 4 * WORKERS * ROUNDS


def test_a_span_has_holes_and_what_is_always_passed_together_is_told_once() -> None:
    row = tuple((number, 2.0) for number in range(20) if number != 7)
    pair: Passed = ((30, 1.0), (31, 1.0), (32, 0.5))
    told = Passages([row, ((7, 1.0), (8, 1.0)), *[((n, 1.0),) for n in range(20)], pair])
    assert told.of(row) == ((), (0,))
    assert told.spans == [Span(0, 20, 2.0, (7,))]
    assert told.of(pair) == (((30, 1.0), (32, 0.5)), ())
    assert told.stand_in[31] == 30


def test_a_queue_that_is_passed_twice_serves_twice() -> None:
    """No span holds it twice, and nothing else stands in for it."""
    twice: Passed = tuple((number, 1.0) for number in (*range(15), *range(15)))
    told = Passages([twice, *[((n, 1.0),) for n in range(15)]])
    single, spans = told.of(twice)
    passed = [number for number, _ in single]
    passed += [n for span in spans for n in range(told.spans[span].begin, told.spans[span].end)]
    assert sorted(passed) == sorted(number for number, _ in twice)


def _busy(end: RoundsEnd) -> list[float]:
    return list(end.busy.values())
