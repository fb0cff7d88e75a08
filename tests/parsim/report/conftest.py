"""Synthetic pipelines for the tests that draw: an order of actions, and when each can start."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from parsim.timelines.timeline import Flow, MemoryCurve, Span, Timeline, ordered
from parsim.units import GIB

Action = tuple[str, int, int]
"""Kind, stage, micro-batch."""

LENGTH = {"F": 0.010, "B": 0.020}
HOP = 0.001


def order(rank: int, p: int, m: int, v: int) -> list[Action]:
    """1F1B, or interleaved 1F1B where a rank holds v > 1 stages."""
    actions = m * v
    early = p - rank - 1 if v == 1 else 2 * (p - rank - 1) + (v - 1) * p
    early = min(early, actions)
    forward = [("F", _chunk(k, p, v) * p + rank, _microbatch(k, p, v)) for k in range(actions)]
    backward = [
        ("B", (v - 1 - _chunk(k, p, v)) * p + rank, _microbatch(k, p, v)) for k in range(actions)
    ]
    steady = [a for pair in zip(forward[early:], backward, strict=False) for a in pair]
    return forward[:early] + steady + backward[actions - early :]


def _chunk(k: int, p: int, v: int) -> int:
    return (k // p) % v


def _microbatch(k: int, p: int, v: int) -> int:
    return k if v == 1 else (k // (p * v)) * p + k % p


def needs(action: Action, stages: int) -> Action | None:
    """The action on another stage that this one waits for."""
    kind, stage, microbatch = action
    if kind == "F":
        return ("F", stage - 1, microbatch) if stage else None
    return ("B", stage + 1, microbatch) if stage + 1 < stages else ("F", stage, microbatch)


def finish_times(orders: list[list[Action]], stages: int, hop: float) -> dict[Action, float]:
    """End of every action: it starts when its rank is free and what it needs has arrived."""
    ends: dict[Action, float] = {}
    waiting = [list(reversed(actions)) for actions in orders]
    free = [0.0] * len(orders)
    while any(waiting):
        for rank, actions in enumerate(waiting):
            while actions:
                need = needs(actions[-1], stages)
                if need is not None and need not in ends:
                    break
                action = actions.pop()
                travel = hop if need is not None and need[1] != action[1] else 0.0
                ready = ends[need] + travel if need is not None else 0.0
                free[rank] = max(free[rank], ready) + LENGTH[action[0]]
                ends[action] = free[rank]
    return ends


def critical_path(orders: list[list[Action]], ends: dict[Action, float]) -> list[Action]:
    """The last action and, step by step, whichever of its two predecessors ended later."""
    stages = 1 + max(stage for _, stage, _ in ends)
    before = {b: a for actions in orders for a, b in itertools.pairwise(actions)}
    path = [max(ends, key=lambda action: ends[action])]
    while True:
        causes = [a for a in (before.get(path[-1]), needs(path[-1], stages)) if a is not None]
        if not causes:
            return path[::-1]
        path.append(max(causes, key=lambda action: ends[action]))


def lay_out(p: int, m: int, v: int, *, communication: bool, memory: bool) -> Timeline:
    """A whole timeline of p ranks, m micro-batches and v stages a rank."""
    orders = [order(rank, p, m, v) for rank in range(p)]
    ends = finish_times(orders, p * v, HOP if communication else 0.0)
    spans = [
        Span(a[1] % p, "compute", a[0], end - LENGTH[a[0]], end, a[1], a[2])
        for a, end in ends.items()
    ]
    if communication:
        spans = [s._replace(exposed=0.15 * s.duration) if s.kind == "B" else s for s in spans]
        spans += transfers(ends, p, p * v) + synchronisation(orders, ends)
    spans = list(ordered(spans))
    numbers = {(s.kind, s.stage, s.microbatch): i for i, s in enumerate(spans)}
    flows = [
        Flow(i, numbers["RECV" + s.kind[4:], *partner(s)])
        for i, s in enumerate(spans)
        if s.kind.startswith("SEND")
    ]
    return Timeline(
        spans=tuple(spans),
        flows=tuple(flows),
        memory=tuple(memory_curve(r, orders[r], ends) for r in range(p)) if memory else (),
        critical=tuple(numbers[a] for a in critical_path(orders, ends)),
        meta={
            "plan": f"pp={p} v={v} m={m} 1F1B",
            "step_time_s": max(span.end for span in spans),
            "bubble_fraction": (p - 1) / (v * m + p - 1),
            "bubble_definition": "idle compute time over the pipeline phase, mean of ranks",
            "peak_allocated_bytes": 61.25 * GIB,
        },
    )


def transfers(ends: dict[Action, float], p: int, stages: int) -> list[Span]:
    """A send and a receive after every action whose result another rank needs."""
    spans = []
    for (kind, stage, microbatch), end in ends.items():
        target = stage + 1 if kind == "F" else stage - 1
        if 0 <= target < stages:
            at = (end, end + HOP)
            spans.append(Span(stage % p, "send", f"SEND_{kind}", *at, stage, microbatch))
            spans.append(Span(target % p, "recv", f"RECV_{kind}", *at, target, microbatch))
    return spans


def partner(send: Span) -> tuple[int, int]:
    """Stage and micro-batch of the receive that belongs to a send."""
    return (send.stage + (1 if send.kind == "SEND_F" else -1), send.microbatch)


def synchronisation(orders: list[list[Action]], ends: dict[Action, float]) -> list[Span]:
    """One gradient reduction and one optimizer step at the end of every rank."""
    spans = []
    for rank, actions in enumerate(orders):
        done = ends[actions[-1]]
        spans.append(Span(rank, "dp", "REDUCE_GRAD", done - 0.03, done + 0.03, actions[-1][1]))
        spans.append(Span(rank, "compute", "OPTIMIZER", done + 0.03, done + 0.045))
    return spans


def memory_curve(rank: int, actions: list[Action], ends: dict[Action, float]) -> MemoryCurve:
    """A GiB more at the start of each forward, one less at the end of its backward."""
    changes = sorted(
        (ends[a] - LENGTH["F"], GIB) if a[0] == "F" else (ends[a], -GIB) for a in actions
    )
    times, values = [0.0], [(30 + rank % 3) * GIB]
    for time, change in changes:
        times.append(time)
        values.append(values[-1] + change)
    return MemoryCurve(rank=rank, times=tuple(times), bytes=tuple(float(x) for x in values))


@pytest.fixture
def pipeline() -> Callable[..., Timeline]:
    """Maker of timelines: `pipeline(p, m, v, communication=True, memory=True)`."""

    def make(
        p: int = 4, m: int = 8, v: int = 1, *, communication: bool = False, memory: bool = False
    ) -> Timeline:
        return lay_out(p, m, v, communication=communication, memory=memory)

    return make
