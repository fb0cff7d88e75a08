"""What was predicted against what the turns measured: steps, ratios, order, ages of gradients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Any

import numpy as np

from parsim.arrays import Array
from parsim.scenario import load_scenario
from parsim.sim import simulate
from parsim.sim.rounds.rounds_end import staleness
from parsim.sim.rounds.run import run_rounds
from parsim.strategy.asynchronous_server import asynchronous_server
from parsim.strategy.task import Queue
from parsim.validation.ranking import spearman

BASE = "ddp"

TIE = 1e-3
"""Predictions so near to each other, as a share, say of no plan that it is the faster one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One strategy with one model: predicted seconds of a step, and those of each turn."""

    model: str
    strategy: str
    predicted: float
    turns: Sequence[float]

    @property
    def least(self) -> float:
        """The fastest turn: what else the machine does only adds."""
        return min(self.turns)

    @property
    def error_of_least(self) -> float:
        """(predicted - measured) / measured, of the fastest turn."""
        return self.predicted / self.least - 1.0

    def ratio(self, base: Row) -> float:
        """Its step over that of another in the same turn, median over the turns."""
        return median(x / y for x, y in zip(self.turns, base.turns, strict=True))

    def ratio_error(self, base: Row) -> float:
        """The signed error of the predicted ratio."""
        return self.predicted / base.predicted / self.ratio(base) - 1.0


def predicted_step(path: Path) -> float:
    """Seconds of a scenario's step."""
    scenario = load_scenario(path)
    prediction = simulate(scenario.job, scenario.fixed_plan(), jitter=scenario.jitter)
    return prediction.step_time


def with_ties(seconds: Sequence[float]) -> list[float]:
    """Seconds, where all that lie within TIE above one are taken for that one.

    Ranks then share their mean place, so that a tie is neither right nor wrong of a pair: where
    measured steps differ the correlation is below 1, however the tied ones came out.
    """
    least = dict[float, float]()
    start = -1.0
    for value in sorted(seconds):
        if start < 0.0 or value > start * (1.0 + TIE):
            start = value
        least[value] = start
    return [least[value] for value in seconds]


def _order(rows: Sequence[Row], base: Row) -> float | None:
    """The rank correlation of predicted steps, ties among them, with measured ones."""
    predicted = with_ties([row.predicted for row in rows])
    return spearman(list(zip(predicted, (row.ratio(base) for row in rows), strict=True)))


def by_model(rows: Sequence[Row]) -> Mapping[str, list[Row]]:
    """The rows of each model."""
    return {model: [r for r in rows if r.model == model] for model in {r.model: 0 for r in rows}}


def summary(rows: Sequence[Row], base_name: str = BASE) -> dict[str, Any]:
    """Figures of one model's rows, one of which is the base of the ratios."""
    base = next(row for row in rows if row.strategy == base_name)
    others = [row for row in rows if row is not base]
    return {
        "order_spearman": _order(rows, base),
        "mean_absolute_error_of_ratio": fmean(abs(row.ratio_error(base)) for row in others),
        "mean_absolute_error_of_least": fmean(abs(row.error_of_least) for row in rows),
        "rows": [
            {
                "strategy": row.strategy,
                "predicted_step_s": row.predicted,
                "least_measured_step_s": row.least,
                "median_measured_step_s": median(row.turns),
                "turns_s": list(row.turns),
                "error_of_least": row.error_of_least,
                f"predicted_over_{base_name}": row.predicted / base.predicted,
                f"measured_over_{base_name}": row.ratio(base),
                "error_of_ratio": row.ratio_error(base),
            }
            for row in rows
        ],
    }


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
