"""Two timelines, quantity by quantity: the prediction of a step and its measurement."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

from parsim.comparison.compared import (
    PREDICTED_MEASURED,
    Compared,
    Names,
    Pair,
    TimelineComparison,
    drawn_step,
    slow_cores,
    uncalibrated,
    unlike,
)
from parsim.comparison.quantities import Groups, Quantities, quantities_of
from parsim.errors import InputError
from parsim.timelines.timeline import Timeline

_LISTED = 8


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
    common = _common(ours, theirs, names)
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


def _common(ours: Groups, theirs: Groups, names: Names) -> list[int]:
    """The ranks that both have.

    Raises:
        InputError: there is none.
    """
    common = sorted(ours.keys() & theirs.keys())
    if not common:
        raise InputError(
            f"no common rank: {names[0]} has {_list(ours)}, {names[1]} has {_list(theirs)}; global "
            f"ranks need meta.pipeline_rank to be compared with pipeline ranks"
        )
    return common


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
    yield from _rank_notes(predicted, measured, ours, theirs, names)
    for what in ("model", "plan"):
        both = [timeline.meta.get(what) for timeline in (predicted, measured)]
        if all(both) and both[0] != both[1]:
            yield f"the {what}s differ: {names[0]} {both[0]}, {names[1]} {both[1]}"
    if drawn := drawn_step(measured.meta):
        yield f"the step time is the median of all measured steps; {drawn}"
    if slow := slow_cores(measured.meta.get("core_pace", 1.0)):
        yield slow
    if load := measured.meta.get("expert_load"):
        yield (
            f"the busiest of the ranks that share a layer's experts got {load['mean']:.2f} times "
            f"the mean of tokens (worst layer {load['max']:.2f}); predicted: {load['assumed']:.2f}"
        )
    sources = [timeline.meta.get("source") for timeline in (predicted, measured)]
    if sources == ["measured", "predicted"]:
        yield "the first timeline is a measurement and the second a prediction: swapped?"


def _rank_notes(
    predicted: Timeline, measured: Timeline, ours: Groups, theirs: Groups, names: Names
) -> Iterator[str]:
    """Which ranks are compared with which, where that is not each with its own."""
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


def _list(ranks: Iterable[int]) -> str:
    """Ranks as text, the first few of many."""
    known: Sequence[int] = list(ranks)
    if not known:
        return "no rank"
    more = f" and {len(known) - _LISTED} more" if len(known) > _LISTED else ""
    return f"rank {', '.join(map(str, known[:_LISTED]))}{more}"
