"""Orders that are searched for where stages have replicas of their own, against 1F1B over them.

A pipeline has 2 to 5 stages of 1 to 4 replicas, not all of one, and 24 micro-batches. A micro-batch
takes 0.6 to 1.6 forward and 1 to 3 backward for each replica of its stage, so that all are equally
busy in the mean, a message 0, 0.1 or 0.3. There is room for what 1F1B holds or for twice as much.
"""

from __future__ import annotations

import random
import time

import numpy as np

from parsim.plan.stages import least_warmups
from parsim.schedule.orders.search import search_order
from parsim.schedule.orders.weight_fill import Rows
from parsim.schedule.orders.work import Work
from parsim.sim.program import by_recurrence
from parsim.sim.stages.prices import StagePrices
from parsim.strategy.unequal_stages import unequal_stages
from tests.tools.searched_orders import ROUNDING, Case

CASES, COUNT = 100, 24
REPLICATED = "stages with replicas"


def replicated(seed: int) -> Work:
    """The pipeline of a seed."""
    rng = random.Random(seed)
    p = rng.randint(2, 5)
    counts = (1,) * p
    while max(counts) == 1:
        counts = tuple(rng.choice((1, 1, 2, 3, 4)) for _ in range(p))
    deep = rng.choice((1, 2))
    return Work(
        stage_rank=range(p),
        num_microbatches=COUNT,
        forward=tuple(count * rng.uniform(0.6, 1.6) for count in counts),
        backward=tuple(count * rng.uniform(1.0, 3.0) for count in counts),
        limits=tuple(
            min(COUNT // count, deep * (begun + 1))
            for count, begun in zip(counts, least_warmups(counts), strict=True)
        ),
        message=rng.choice((0.0, 0.1, 0.3)),
        counts=counts,
    )


def length_of(work: Work, rows: Rows) -> float:
    """When the last pass ends, by the simulator's recurrence over the program's tasks."""
    nothing, replicas = np.zeros(len(work.forward)), work.replicas
    prices = StagePrices(
        forward=np.array(work.forward),
        backward=np.array(work.backward),
        update=nothing,
        message=work.message,
        weights=nothing,
        activations=nothing,
        static=nothing,
        counts=replicas.counts,
        tail={name: np.zeros(1) for name in ("late", "norm", "gather", "straggler")}
        | {"optimizer": np.zeros(replicas.num_ranks)},
    )
    return float(by_recurrence(prices.on(unequal_stages(replicas, rows))).updated[0])


def judged(seed: int) -> Case:
    """Search an order and hold it against 1F1B."""
    work = replicated(seed)
    begin = time.process_time()
    searched = search_order(work)
    seconds = time.process_time() - begin
    if abs(length_of(work, searched.rows) / searched.makespan - 1.0) > ROUNDING:
        raise RuntimeError(f"seed {seed}: the order takes another time than was said")
    named = length_of(work, work.replicas.rows(COUNT))
    return Case(
        seed=seed,
        group=REPLICATED,
        work=work,
        named=named,
        name="1f1b",
        searched=searched,
        seconds=seconds,
    )
