"""Costs written down by hand, and random cases: what the simulator's tests are run on."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any, NamedTuple

import numpy as np

from parsim.arrays import Array
from parsim.cost.step.costs import StepCosts
from parsim.schedule import Schedule, build_schedule

Number = float | Sequence[float]


class Case(NamedTuple):
    """A schedule and what its actions cost."""

    schedule: Schedule
    costs: StepCosts


def make_costs(
    stages: int,
    pp: int,
    *,
    forward: Number,
    backward: Number,
    hop: Number = 0.0,
    exposed: float = 0.0,
    buckets: Number = 1.0,
    bucket_time: Number = 0.0,
    tied: float = 0.0,
    norm: float = 0.0,
    optimizer: Number = 0.0,
    gather: Number = 0.0,
    late: float = 0.0,
    straggler: float = 0.0,
    blocking: bool = False,
    overlap: bool = True,
) -> StepCosts:
    """Costs of one plan; a number serves all stages (or ranks)."""

    def column(values: Number, rows: int = stages) -> Array:
        return np.broadcast_to(np.asarray(values, dtype=np.float64), (rows,))[:, None].copy()

    between = column(hop)
    between[-1] = 0.0
    return StepCosts(
        forward=column(forward),
        backward=column(backward),
        exposed_forward=exposed * column(forward),
        exposed_backward=exposed * column(backward),
        recomputed=column(0.0),
        hop=between,
        buckets=column(buckets),
        bucket_time=column(bucket_time),
        tied=np.array([tied]),
        norm=np.array([norm]),
        optimizer=column(optimizer, pp),
        gather=column(gather, pp),
        late=np.array([late]),
        straggler=np.array([straggler]),
        parameters=column(0.0),
        trained=column(0.0),
        blocking_p2p=blocking,
        overlap_reduce=overlap,
    )


def random_schedule(rng: random.Random) -> Schedule:
    """Any of the four, up to 6 ranks, 12 micro-batches and 3 chunks."""
    name = rng.choice(("naive", "gpipe", "1f1b", "interleaved_1f1b"))
    pp = rng.randint(1, 6)
    if name == "interleaved_1f1b":
        m, v = pp * rng.randint(1, 3), rng.randint(2, 3)
        return build_schedule(name, pp=pp, num_microbatches=m, v=v)
    return build_schedule(name, pp=pp, num_microbatches=rng.randint(1, 12))


def random_case(seed: int, *, dyadic: bool = True) -> Case:
    """A random schedule with random costs."""
    rng = random.Random(seed)
    schedule = random_schedule(rng)
    return Case(schedule, random_costs(schedule, rng, dyadic=dyadic))


def random_costs(schedule: Schedule, rng: random.Random, *, dyadic: bool = True) -> StepCosts:
    """Uneven durations and hops, both overlap switches, all parts of the tail.

    Dyadic times are k/1024 with bucket counts that are powers of two: sums of them are exact.
    """
    stages, pp = schedule.num_stages, schedule.pp

    def times(count: int, top: int, low: int = 0) -> list[float]:
        if dyadic:
            return [rng.randint(low, top) / 1024 for _ in range(count)]
        return [rng.uniform(low, top) / 1024 for _ in range(count)]

    return make_costs(
        stages,
        pp,
        forward=times(stages, 2048, 1),
        backward=times(stages, 4096, 1),
        hop=times(stages, 400),
        exposed=rng.randint(0, 3) / 4,
        buckets=[2.0 ** rng.randint(0, 4) for _ in range(stages)],
        bucket_time=times(stages, 600),
        tied=times(1, 200, 1)[0] if pp > 1 and rng.random() < 0.5 else 0.0,
        norm=times(1, 50)[0],
        optimizer=times(pp, 500),
        gather=times(pp, 500),
        late=times(1, 50)[0],
        blocking=rng.random() < 0.5,
        overlap=rng.random() < 0.5,
    )


def side_by_side(costs: Sequence[StepCosts]) -> StepCosts:
    """Several plans of one shape as one batch, with the switches of the first."""
    names = [f.name for f in fields(StepCosts) if f.type == "Array"]
    columns: dict[str, Any] = {
        n: np.concatenate([getattr(c, n) for c in costs], axis=-1) for n in names
    }
    return replace(costs[0], **columns)
