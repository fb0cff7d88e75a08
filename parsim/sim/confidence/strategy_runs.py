"""How far predictions of published runs with a strategy of whole replicas were from them.

A step under such a strategy has the interval of its all-reduced step, widened by what its messages
leave open and, where the nearest measured group has no run with the strategy, as a new kind of plan
is. Errors of runs with it are told beside: over all frameworks and devices, those of networks.

Source: the tables of networks' runs (`validation/data/vision`, `validation/data/strategies`);
`report/accuracy/strategies.py` gathers their errors and `make reports` writes
`strategy_runs.json`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from parsim.units import counted, percent

STRATEGY_RUNS = files("parsim.sim.confidence") / "strategy_runs.json"
"""Figures of the shipped runs; `make reports` writes it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StrategyRuns:
    """Step-time errors of `n` published runs with a strategy (fractions).

    Of |predicted / measured - 1| there is the mean; `bias` keeps the sign.
    """

    strategy: str
    n: int
    mean_abs_error: float
    bias: float

    def to_json(self) -> dict[str, Any]:
        """Plain data of `strategy_runs.json`."""
        return asdict(self)


def strategy_words(strategy: str, *, among: bool) -> str:
    """What published runs with a strategy say of its predictions, for people.

    `among` says whether runs with it are among those that the interval rests on.
    """
    runs = shipped_strategy_runs().get(strategy)
    if runs is None:
        return f"no measured run with strategy {strategy}"
    which = "some of these" if among else "none of these"
    return (
        f"{counted(runs.n, 'published run')} with strategy {strategy}, {which}: mean error "
        f"{percent(runs.mean_abs_error)}, bias {percent(runs.bias, signed=True)}"
    )


@cache
def shipped_strategy_runs() -> Mapping[str, StrategyRuns]:
    """The figures of `strategy_runs.json`, by strategy."""
    entries = json.loads(STRATEGY_RUNS.read_text(encoding="utf-8"))["strategies"]
    return {entry["strategy"]: StrategyRuns(**entry) for entry in entries}
