"""What is left of many errors, and whether prediction intervals hold what they promise.

An interval that is wide enough to be always right is useless, so its width stands beside: half of
it over the prediction, in the median, against the median error. Whether intervals hold for a table
that they have not seen, `make reports` computes in the workshop and keeps in `left_out.json`, so
that a report of the shipped tables can cite it without computing all figures a dozen times.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.resources import files
from statistics import mean, median
from typing import Any

Bounds = tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """Rows with an interval and a measurement; fractions, None where there is no row.

    `covered` is the share of measurements inside, `half_width` the median of (high - low) / 2 over
    the prediction, `error` the median of |predicted / measured - 1|.
    """

    n: int
    covered: float | None = None
    half_width: float | None = None
    error: float | None = None

    @property
    def ratio(self) -> float | None:
        """Half width in median errors; 1.9 for a normal error and 80 %."""
        return self.half_width / self.error if self.half_width and self.error else None

    def to_json(self) -> dict[str, Any]:
        """Plain data, the ratio with it."""
        names = {name: getattr(self, name) for name in self.__slots__}
        return {**names, "half_width_over_error": self.ratio}


def coverage(rows: Iterable[tuple[float, float, Bounds]]) -> Coverage:
    """Judge (predicted, measured, interval) rows."""
    kept = list(rows)
    if not kept:
        return Coverage(n=0)
    inside = [low <= measured <= high for _, measured, (low, high) in kept]
    return Coverage(
        n=len(kept),
        covered=sum(inside) / len(kept),
        half_width=median(0.5 * (high - low) / predicted for predicted, _, (low, high) in kept),
        error=median(abs(predicted / measured - 1.0) for predicted, measured, _ in kept),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelCoverage:
    """How predictions of runs hold that are new at some level: a model, a device, a source.

    Each of `groups` groups of runs was left out once, of the constants' fit and of the intervals'
    figures. `mean` and `bias` are of |error| and of the signed error, predicted over measured - 1.
    `coverage` is by a level's factor that has not seen the run's table, `seen` the share inside
    with the factor of all tables. `cell_error` is the median over `cells` configuration cells of
    their mean |error|: a table of many repeats counts as the few cells that it has.
    """

    level: str
    about: str
    groups: int
    mean: float
    bias: float
    coverage: Coverage
    seen: float | None = None
    cells: int = 0
    cell_error: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """Runs judged by constants and figures that have not seen them.

    `tables` has the coverage of each table left out, and of all rows so judged (None); `levels`
    that of each way in which a question can be new.
    """

    tables: Mapping[str | None, Coverage]
    levels: tuple[LevelCoverage, ...]


def left_out_text(left_out: LeftOut) -> str:
    """What `left_out.json` holds."""
    tables = [{"table": table, **asdict(judged)} for table, judged in left_out.tables.items()]
    levels = [asdict(level) for level in left_out.levels]
    document = {"schema_version": 3, "levels": levels, "tables": tables}
    return json.dumps(document, indent=1) + "\n"


def read_left_out(text: str) -> LeftOut:
    """The coverages of a text that `left_out_text` wrote."""
    document = json.loads(text)
    return LeftOut(
        tables={entry.pop("table"): Coverage(**entry) for entry in document["tables"]},
        levels=tuple(
            LevelCoverage(**{**entry, "coverage": Coverage(**entry["coverage"])})
            for entry in document["levels"]
        ),
    )


def shipped_left_out(name: str = "left_out.json") -> LeftOut:
    """The coverages of the shipped tables: those of networks are in `left_out_networks.json`."""
    return read_left_out((files("parsim.validation") / name).read_text("utf-8"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Errors of one table (fractions); None where no row has a measured value.

    `n` rows have an error, `n_skipped` have no prediction. Of |predicted / measured - 1| there are
    mean, median, 90th percentile and maximum; `bias` is the mean of predicted / measured - 1.
    """

    n: int
    n_skipped: int
    mean_abs_error: float | None = None
    median_abs_error: float | None = None
    p90_abs_error: float | None = None
    max_abs_error: float | None = None
    bias: float | None = None

    def to_json(self) -> dict[str, Any]:
        """Field names are the JSON contract."""
        return {name: getattr(self, name) for name in self.__slots__}


def summarise(errors: Sequence[float], skipped: int) -> Summary:
    """Mean, median, 90th percentile (nearest rank) and maximum of |error|, and the mean error."""
    if not errors:
        return Summary(n=0, n_skipped=skipped)
    sizes = sorted(abs(e) for e in errors)
    rank = -(-9 * len(sizes) // 10)  # ceil(0.9 n)
    return Summary(
        n=len(sizes),
        n_skipped=skipped,
        mean_abs_error=mean(sizes),
        median_abs_error=median(sizes),
        p90_abs_error=sizes[rank - 1],
        max_abs_error=sizes[-1],
        bias=mean(errors),
    )
