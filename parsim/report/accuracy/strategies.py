"""`strategy_runs.json`: errors of published runs by strategy, which predictions cite."""

from __future__ import annotations

import json
from collections.abc import Iterator

from parsim.sim.confidence.strategy_runs import StrategyRuns
from parsim.validation.coverage import summarise
from parsim.validation.validate import Validation


def strategy_runs_text(validation: Validation) -> str:
    """What `strategy_runs.json` holds: errors of all rows that name a strategy, by strategy."""
    entries = [runs.to_json() for runs in gather_strategy_runs(validation)]
    return json.dumps({"schema_version": 1, "strategies": entries}, indent=1) + "\n"


def gather_strategy_runs(validation: Validation) -> Iterator[StrategyRuns]:
    """Figures of each strategy of the rows but all-reduced gradients, by name."""
    errors: dict[str, list[float]] = {}
    for row in validation.rows:
        if row.strategy and row.error is not None:
            errors.setdefault(row.strategy, []).append(row.error)
    for strategy, each in sorted(errors.items()):
        summary = summarise(each, 0)
        shares = {name: getattr(summary, name) or 0.0 for name in ("mean_abs_error", "bias")}
        rounded = {name: round(share, 4) for name, share in shares.items()}
        yield StrategyRuns(strategy=strategy, n=summary.n, **rounded)
