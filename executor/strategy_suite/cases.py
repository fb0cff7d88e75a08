"""What the suite compares: two models, every strategy on two workers, and delays of workers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from executor.suite.cases import MEDIUM, SMALL, Case
from parsim.arrays import Array

WORKERS = 2
MODELS: Mapping[str, tuple[Mapping[str, Any], int]] = {
    "gpt-7m": ({**SMALL, "seq_len": 32, "dropout": False}, 4),
    "llama-15m": ({**MEDIUM, "seq_len": 64}, 4),
}
"""A model and its global batch: few tokens, so that messages are no small part of a step."""

STRATEGIES: Mapping[str, Any] = {
    "ddp": "ddp",
    "data_parallel": "data_parallel",
    "one server": {"name": "parameter_server", "servers": 1, "on": "devices"},
    "two servers": {"name": "parameter_server", "servers": 2, "on": "devices"},
    "two servers, 10 %": {
        "name": "parameter_server",
        "servers": 2,
        "on": "devices",
        "compression": 0.1,
    },
    "one server, asynchronous": {"name": "asynchronous_server", "servers": 1, "on": "devices"},
    "two servers, asynchronous": {"name": "asynchronous_server", "servers": 2, "on": "devices"},
    "gossip": "gossip",
    "asynchronous gossip": "asynchronous_gossip",
    "local SGD, every 2": {"name": "local_sgd", "every": 2},
    "DiLoCo, every 2": {"name": "diloco", "every": 2},
}
"""What stands under `plan.strategy`, by the name in the report."""

WARMUP, MEASURED = 2, 4
"""Rounds of a turn; averages are every second round, so that a turn has as many as there should be.
"""


def cases() -> list[Case]:
    """Every strategy with every model."""
    return [
        Case(
            name=f"{model}, {name}",
            family=model,
            model=block,
            batch=batch,
            plan={"dp": WORKERS, "microbatch_size": batch // WORKERS, "strategy": strategy},
        )
        for model, (block, batch) in MODELS.items()
        for name, strategy in STRATEGIES.items()
    ]


AGED: Mapping[str, Mapping[str, Any]] = {
    "no bound": {"servers": 1},
    "bound 1": {"servers": 1, "staleness": 1},
    "bound 0": {"servers": 1, "staleness": 0},
}
"""Options of the asynchronous server whose ages are compared."""

DELAYED_WORKERS, DELAYED_ROUNDS = 4, 60
SLOWEST = 2.0
"""The last worker's delays are so many times as long."""


def delays(mean: float, seed: int = 7) -> Array:
    """Seconds that each worker sleeps in each round, (rounds, workers): lognormal, sigma 0.3."""
    random = np.random.default_rng(seed)
    drawn = np.exp(0.3 * random.standard_normal((DELAYED_ROUNDS, DELAYED_WORKERS)))
    drawn[:, -1] *= SLOWEST
    return np.asarray(mean * drawn)
