"""Two timelines, quantity by quantity: the prediction of a step and its measurement."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from parsim.comparison.likeness import drawn_step, error_title, uncalibrated, unlike
from parsim.comparison.quantities import PEAK, STEP, Groups, Quantities, quantities_of
from parsim.errors import InputError
from parsim.results import Result
from parsim.timelines.timeline import Timeline

SCHEMA_VERSION = 1

JUDGED = (STEP, PEAK)
"""Quantities whose errors must stay within the tolerance."""

Names = tuple[str, str]

PREDICTED_MEASURED: Names = ("predicted", "measured")

_LISTED = 8

_SECONDS = ((1.0, "s", 3), (1e-3, "ms", 3), (1e-6, "us", 3))
_BYTES = ((2.0**30, "GiB", 3), (2.0**20, "MiB", 3), (1.0, "B", 0))


class Compared(NamedTuple):
    """One quantity of the step (`rank` None) or of a rank; None where a timeline lacks it.

    Seconds of other hardware are not `comparable`.
    """

    quantity: str
    rank: int | None
    predicted: float | None
    measured: float | None
    comparable: bool = True

    @property
    def unit(self) -> str:
        """`s`, `bytes` or `fraction`."""
        end = self.quantity.rpartition("_")[2]
        return end if end in ("s", "bytes") else "fraction"

    @property
    def difference(self) -> float | None:
        """Predicted - measured."""
        if self.predicted is None or self.measured is None:
            return None
        return self.predicted - self.measured

    @property
    def error(self) -> float | None:
        """(predicted - measured) / measured; None where nothing, or 0, or another thing is."""
        if self.predicted is None or not self.measured or not self.comparable:
            return None
        return (self.predicted - self.measured) / self.measured

    def text(self, value: float | None, *, signed: bool = False) -> str:
        """A value in the unit that suits the row's larger one; a dash where there is none."""
        if value is None:
            return "-"
        factor, unit, digits = self._scale()
        if signed and unit == "%":
            unit = "points"  # 30 % less 20 % are 10 points, not 10 %
        number = round(value / factor, digits) + 0.0  # no -0.000
        return f"{number:{'+' if signed else ''}.{digits}f} {unit}"

    def _scale(self) -> tuple[float, str, int]:
        """What a printed unit is worth, its name, and the digits behind the point."""
        if self.unit == "fraction":
            return 0.01, "%", 1
        largest = max(abs(self.predicted or 0.0), abs(self.measured or 0.0))
        scales = _SECONDS if self.unit == "s" else _BYTES
        return next((scale for scale in scales if largest >= scale[0] / 10), scales[-1])

    @property
    def error_text(self) -> str:
        """Signed percent; a dash where there is no error."""
        return "-" if self.error is None else f"{round(100 * self.error, 1) + 0.0:+.1f} %"

    def to_json(self) -> dict[str, Any]:
        """One entry of `rows` in `compare --json`."""
        return {
            "quantity": self.quantity,
            "rank": self.rank,
            "predicted": self.predicted,
            "measured": self.measured,
            "unit": self.unit,
            "error": self.error,
        }


class Pair(NamedTuple):
    """A compared rank, and the ranks of either timeline that stand for it."""

    rank: int
    predicted: tuple[int, ...]
    measured: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class TimelineComparison(Result):
    """All rows: of the step, then of each kind of span, then of each rank.

    `spread` says by quantity how the measurement scattered (median, min, mad, n), where known.
    `names` are what texts call the two timelines: predicted and measured, or first and second
    where both are predictions or both measurements; the rows' fields are the same then. `unlike`
    says why times cannot be compared, if so; `uncalibrated` are the device and the system of the
    prediction that nobody measured.
    """

    rows: tuple[Compared, ...]
    pairs: tuple[Pair, ...]
    spread: Mapping[str, Mapping[str, float]]
    notes: tuple[str, ...]
    tolerance: float
    names: Names = PREDICTED_MEASURED
    unlike: str = ""
    uncalibrated: tuple[str, ...] = ()

    @property
    def judges(self) -> str:
        """What the last column is: a prediction's error, or the difference of two alike."""
        if self.names != PREDICTED_MEASURED:
            return "relative difference"
        return error_title(self.uncalibrated)

    def row(self, quantity: str, rank: int | None = None) -> Compared:
        """The row of one quantity."""
        return next(row for row in self.rows if (row.quantity, row.rank) == (quantity, rank))

    @property
    def worst(self) -> Compared | None:
        """The step time or peak with the largest error; None where neither has one."""
        judged = [row for row in self.rows if row.quantity in JUDGED and row.error is not None]
        return max(judged, key=lambda row: abs(row.error or 0.0), default=None)

    @property
    def within_tolerance(self) -> bool:
        """Whether the errors of step time and of every rank's peak are small enough."""
        worst = self.worst
        return not self.unlike and (worst is None or abs(worst.error or 0.0) <= self.tolerance)

    @property
    def headline(self) -> str:
        """The worst judged error, and the tolerance."""
        if self.unlike:
            return f"step times cannot be judged: {self.unlike}"
        worst = self.worst
        if worst is None:
            return f"neither step time nor peak memory can be judged: nothing is {self.names[1]}"
        where = "" if worst.rank is None else f" of rank {worst.rank}"
        side = "within" if self.within_tolerance else "outside"
        return (
            f"{worst.quantity}{where}: {self.names[0]} {worst.text(worst.predicted)}, "
            f"{self.names[1]} {worst.text(worst.measured)}, {self.judges} {worst.error_text}, "
            f"is {side} the tolerance of {100 * self.tolerance:g} %"
        )

    def records(self) -> list[dict[str, Any]]:
        """One row per quantity, of the step and of each rank."""
        return [row.to_json() for row in self.rows]

    def to_json(self) -> dict[str, Any]:
        """The document that `parsim compare --json` prints."""
        return {
            "schema_version": SCHEMA_VERSION,
            "names": list(self.names),
            "unlike": self.unlike or None,
            "uncalibrated": list(self.uncalibrated),
            "rows": self.records(),
            "within_tolerance": self.within_tolerance,
        }


def compare_timelines(
    predicted: Timeline, measured: Timeline, *, tolerance: float = 0.1
) -> TimelineComparison:
    """Compare what two timelines amount to, over the ranks that both have.

    Ranks of equal number are compared. Where one timeline's `meta` has `pipeline_rank` (rank to
    pipeline rank) and the other's has not, the other's ranks are pipeline ranks, and those of the
    first that share a pipeline rank are averaged.

    Raises:
        InputError: the timelines have no rank in common, or the tolerance is no share.
    """
    if not 0.0 <= tolerance < math.inf:
        raise InputError(f"tolerance={tolerance} must be a finite share, at least 0; e.g. 0.1")
    names = _names(predicted, measured)
    ours, theirs = _groups(predicted, measured, names)
    common = sorted(ours.keys() & theirs.keys())
    if not common:
        raise InputError(
            f"no common rank: {names[0]} has {_list(ours)}, {names[1]} has {_list(theirs)}; global "
            f"ranks need meta.pipeline_rank to be compared with pipeline ranks"
        )
    ours_quantities = quantities_of(predicted, {rank: ours[rank] for rank in common})
    theirs_quantities = quantities_of(measured, {rank: theirs[rank] for rank in common})
    different = unlike(predicted.meta, measured.meta) if names == PREDICTED_MEASURED else ""
    rows = _rows(ours_quantities, theirs_quantities)
    return TimelineComparison(
        rows=tuple(row._replace(comparable=not different or row.unit == "bytes") for row in rows),
        pairs=tuple(Pair(rank, ours[rank], theirs[rank]) for rank in common),
        spread=dict(measured.meta.get("spread", {})),
        notes=tuple(_notes(predicted, measured, ours, theirs, names)),
        tolerance=tolerance,
        names=names,
        unlike=different,
        uncalibrated=uncalibrated(predicted.meta) if names == PREDICTED_MEASURED else (),
    )


def _names(predicted: Timeline, measured: Timeline) -> Names:
    """What the two are called; timelines that do not say what they are, as they are given."""
    sources = [timeline.meta.get("source") for timeline in (predicted, measured)]
    alike = sources[0] == sources[1] and sources[0] in PREDICTED_MEASURED
    return ("first", "second") if alike else PREDICTED_MEASURED


def _groups(predicted: Timeline, measured: Timeline, names: Names) -> tuple[Groups, Groups]:
    fold = [bool(timeline.meta.get("pipeline_rank")) for timeline in (predicted, measured)]
    return (
        _folded(predicted, names[0]) if fold == [True, False] else _alone(predicted),
        _folded(measured, names[1]) if fold == [False, True] else _alone(measured),
    )


def _alone(timeline: Timeline) -> Groups:
    return {rank: (rank,) for rank in timeline.ranks}


def _folded(timeline: Timeline, name: str) -> Groups:
    pipeline_rank = {int(rank): at for rank, at in timeline.meta["pipeline_rank"].items()}
    groups: dict[int, tuple[int, ...]] = {}
    for rank in timeline.ranks:
        if rank not in pipeline_rank:
            raise InputError(
                f"the {name} timeline's meta.pipeline_rank has no entry for rank {rank}; "
                f"it must name the pipeline rank of every rank"
            )
        at = int(pipeline_rank[rank])
        groups[at] = (*groups.get(at, ()), rank)
    return groups


def _rows(predicted: Quantities, measured: Quantities) -> Iterator[Compared]:
    tables = [(None, predicted.step, measured.step), (None, predicted.kinds, measured.kinds)]
    ranks = [(rank, predicted.ranks[rank], measured.ranks[rank]) for rank in predicted.ranks]
    for number, ours, theirs in (*tables, *ranks):
        for name in dict.fromkeys([*ours, *theirs]):
            yield Compared(name, number, ours.get(name), theirs.get(name))


def _notes(
    predicted: Timeline, measured: Timeline, ours: Groups, theirs: Groups, names: Names
) -> Iterator[str]:
    """What a reader must know of the comparison, one sentence each."""
    for name, only in zip(names, (ours.keys() - theirs, theirs.keys() - ours), strict=True):
        if only:
            yield f"not compared: only the {name} timeline has {_list(sorted(only))}"
    if max(map(len, [*ours.values(), *theirs.values()])) > 1:
        yield "ranks that share a pipeline rank are averaged (peak memory: the highest of them)"
    else:
        scopes = [
            str(timeline.meta.get("ranks", "")).partition(" ")[0]
            for timeline in (predicted, measured)
        ]
        if sorted(scopes) == ["global", "pipeline"]:
            yield "pipeline ranks are compared with global ranks of equal number: no pipeline_rank"
    plans = [timeline.meta.get("plan") for timeline in (predicted, measured)]
    if all(plans) and plans[0] != plans[1]:
        yield f"the plans differ: {names[0]} {plans[0]}, {names[1]} {plans[1]}"
    if drawn := drawn_step(measured.meta):
        yield f"the step time is the median of all measured steps; {drawn}"
    if load := measured.meta.get("expert_load"):
        yield (
            f"the busiest of the ranks that share a layer's experts got {load['mean']:.2f} times "
            f"the mean of tokens (worst layer {load['max']:.2f}); predicted: {load['assumed']:.2f}"
        )
    sources = [timeline.meta.get("source") for timeline in (predicted, measured)]
    if sources == ["measured", "predicted"]:
        yield "the first timeline is a measurement and the second a prediction: swapped?"


def _list(ranks: Iterable[int]) -> str:
    """Ranks as text, the first few of many."""
    known: Sequence[int] = list(ranks)
    if not known:
        return "no rank"
    more = f" and {len(known) - _LISTED} more" if len(known) > _LISTED else ""
    return f"rank {', '.join(map(str, known[:_LISTED]))}{more}"
