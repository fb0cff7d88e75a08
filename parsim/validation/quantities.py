"""What a timeline amounts to, in numbers: the quantities that two timelines are compared by.

Of each rank, with its actions (F B I W) in the pipeline phase:

    phase   = last action's end - first action's start, over all compared ranks
    compute_s + exposed_communication_s + idle_s = phase

`compute_s` is the length of the actions without their `exposed` part, `idle_s` all time of the
phase in which no action of the rank runs. `gradient_reduction_s` is the time in which gradients
are reduced and no action of the rank runs, be it in a bubble or after the phase.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from parsim.timeline import ACTIONS, Span, Timeline

PEAK = "peak_allocated_bytes"
STEP = "step_time_s"

Groups = Mapping[int, tuple[int, ...]]
"""The timeline's ranks that stand for one compared rank."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantities:
    """Values by name: of the whole step, of each kind of span, and of each compared rank.

    `kinds` holds mean lengths, named such as `F_mean_s`.
    """

    step: Mapping[str, float]
    kinds: Mapping[str, float]
    ranks: Mapping[int, Mapping[str, float]]


def quantities_of(timeline: Timeline, groups: Groups) -> Quantities:
    """Measure a timeline; where several of its ranks stand for one, times are their mean.

    The peak of several ranks is the highest of them: it decides whether they fit.
    """
    own: dict[int, list[Span]] = {rank: [] for group in groups.values() for rank in group}
    for span in timeline.spans:
        if span.rank in own:
            own[span.rank].append(span)
    phase = _phase([span for spans in own.values() for span in spans])
    peaks = _peaks(timeline)
    single = {rank: _rank_quantities(spans, phase) for rank, spans in own.items()}
    ranks = {rank: _together([single[r] for r in group]) for rank, group in groups.items()}
    for rank, group in groups.items():
        known = [peaks[r] for r in group if r in peaks]
        if known:
            ranks[rank][PEAK] = max(known)
    return Quantities(step=_step(timeline, ranks, phase), kinds=_kinds(own.values()), ranks=ranks)


def is_action(span: Span) -> bool:
    """Whether a span is part of the pipeline phase."""
    return span.stream == "compute" and span.kind in ACTIONS


def step_time(timeline: Timeline) -> float:
    """Seconds of the step: what `meta` says, or the median of its spread, or the last end.

    A measured run has many steps, and draws one.
    """
    said = timeline.meta.get(STEP)
    if said is None:
        said = timeline.meta.get("spread", {}).get(STEP, {}).get("median")
    return timeline.end if said is None else float(said)


def _phase(spans: Iterable[Span]) -> float:
    actions = [span for span in spans if is_action(span)]
    if not actions:
        return 0.0
    return max(span.end for span in actions) - min(span.start for span in actions)


def _step(
    timeline: Timeline, ranks: Mapping[int, Mapping[str, float]], phase: float
) -> dict[str, float]:
    found = {STEP: step_time(timeline), "pipeline_time_s": phase}
    if phase > 0.0:
        found["bubble_fraction"] = fmean(own["idle_s"] for own in ranks.values()) / phase
    return found


def _rank_quantities(spans: Sequence[Span], phase: float) -> dict[str, float]:
    actions = [span for span in spans if is_action(span)]
    reductions = [span for span in spans if span.kind == "REDUCE_GRAD"]
    exposed = sum(span.exposed for span in actions)
    busy = _covered(actions)
    return {
        "compute_s": sum(span.duration for span in actions) - exposed,
        "exposed_communication_s": exposed,
        "idle_s": _unless_rounding(phase - busy, phase),
        "gradient_reduction_s": _unless_rounding(_covered([*actions, *reductions]) - busy, phase),
        "optimizer_s": sum(span.duration for span in spans if span.kind == "OPTIMIZER"),
    }


def _unless_rounding(seconds: float, scale: float) -> float:
    """Differences of sums that should be 0 are not quite, and errors of them would say nothing."""
    return 0.0 if abs(seconds) <= 1e-12 * scale else seconds


def _covered(spans: Iterable[Span]) -> float:
    """Seconds during which at least one of the spans runs."""
    total, until = 0.0, float("-inf")
    for start, end in sorted((span.start, span.end) for span in spans):
        total += max(0.0, end - max(start, until))
        until = max(until, end)
    return total


def _together(ranks: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {name: fmean(own[name] for own in ranks) for name in ranks[0]}


def _kinds(ranks: Iterable[Sequence[Span]]) -> dict[str, float]:
    lengths: dict[str, list[float]] = {}
    for spans in ranks:
        for span in spans:
            lengths.setdefault(span.kind, []).append(span.duration)
    names = [*(kind for kind in ACTIONS if kind in lengths), *sorted(lengths.keys() - set(ACTIONS))]
    return {f"{kind}_mean_s": fmean(lengths[kind]) for kind in names}


def _peaks(timeline: Timeline) -> dict[int, float]:
    """Highest point of each rank's memory curve; a list in `meta`, one per rank, goes before it.

    That list comes from an allocator, which sees what a curve drawn from samples misses.
    """
    peaks = {curve.rank: max(curve.bytes) for curve in timeline.memory if curve.bytes}
    said = timeline.meta.get(PEAK)
    if isinstance(said, list | tuple) and len(said) == len(timeline.ranks):
        peaks.update(zip(timeline.ranks, map(float, said), strict=True))
    return peaks
