"""Ages of gradients by the simulator, with the very delays that workers are given when they run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from parsim.arrays import Array
from parsim.sim.rounds.run import run_rounds
from parsim.sim.rounds.staleness import staleness
from parsim.strategy.asynchronous_server import asynchronous_server
from parsim.strategy.program import Queue

PRICES = ("backward", "push_latency", "pull_latency", "apply")
"""Prices that are nothing here: a round is its delay."""


def simulated_ages(delayed: Array, options: Mapping[str, Any]) -> list[int]:
    """The age of every update, for delays of (rounds, workers) and the strategy's options."""
    rounds, workers = delayed.shape
    program = asynchronous_server(
        workers,
        1,
        (),
        (),
        (Queue(rows=("server",), price="apply"),),
        rounds=rounds,
        staleness=options.get("staleness"),
    )
    prices = {name: np.zeros((1, 1)) for name in PRICES}
    prices["forward"] = np.ones((1, 1))
    ages: list[int] = staleness(run_rounds(program, prices, slow=delayed)).age.tolist()
    return ages


def distance(first: Sequence[int], other: Sequence[int]) -> float:
    """The share of gradients whose age would have to be another for equal distributions.

    Half the sum of the differences of the shares of all ages (total variation).
    """
    size = max(*first, *other) + 1
    shares = [np.bincount(ages, minlength=size) / len(ages) for ages in (first, other)]
    return float(np.abs(shares[0] - shares[1]).sum() / 2)
