"""What a timeline amounts to, in numbers: the quantities that two timelines are compared by.

Of each rank, with its actions (F B I W) in the pipeline phase:

    phase = last action's end - first action's start, over the rank's pipeline
          = compute_s + exposed parts of the actions + updates between them + idle_s

`compute_s` is the length of the actions without their `exposed` part, `idle_s` all time of the
phase in which the rank runs neither an action nor, between its actions, an update. Exposed
communication is what the compute stream waited for, in the whole step; by stream of the spans that
it waited for:

    exposed_communication_s = exposed_tp_s + exposed_ep_s + exposed_dp_s + exposed_p2p_s
    tp    exchanges of activations, inside actions
    dp    sharded parameters and gradients, inside actions and beside them; what is left of the
          reduction of gradients after the last action; parameters gathered after the update
    p2p   messages between stages, so a part of idle_s: the time that a rank hands one over, and
          that it waits for one which is already on its way (before that, the wait is a bubble)
    and of few plans  ep  tokens to experts and back; offload  copies to the host and back

What a timeline's actions have of exposed parts beyond those spans counts as of no stream.
`gradient_reduction_s` is the time in which gradients are reduced and no action of the rank runs,
be it in a bubble or after the phase. `optimizer_s` is the update without what it waits for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from parsim.timelines.kinds import SpanKind, Stream
from parsim.timelines.timeline import ACTIONS, Span, Timeline

EXPOSED = {
    "exposed_tp_s": (Stream.TP,),
    "exposed_ep_s": (Stream.EP,),
    "exposed_dp_s": (Stream.DP,),
    "exposed_p2p_s": (Stream.SEND, Stream.RECV),
    "exposed_offload_s": (Stream.OFFLOAD,),
}
"""The streams of which each quantity adds up what the compute stream waited for."""

_RARE = {Stream.EP: "exposed_ep_s", Stream.OFFLOAD: "exposed_offload_s"}
"""Streams that most timelines lack: their quantities are then left out."""

_ONCE = (SpanKind.REDUCE_GRAD, SpanKind.REDUCE_TIED, SpanKind.GATHER_PARAM)

PEAK = "peak_allocated_bytes"
STEP = "step_time_s"

Groups = Mapping[int, tuple[int, ...]]
"""The timeline's ranks that stand for one compared rank."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantities:
    """Values by name: of the whole step, of each kind of span, and of each compared rank.

    `kinds` holds mean lengths of what the compute stream does, named such as `F_mean_s`, of copies
    of activations to another memory and back, and of what is sent once for each stage, all its
    parts together, such as `REDUCE_GRAD_mean_s`; `F_exposed_mean_s` is the exposed part of an
    action.
    """

    step: Mapping[str, float]
    kinds: Mapping[str, float]
    ranks: Mapping[int, Mapping[str, float]]


def quantities_of(timeline: Timeline, groups: Groups) -> Quantities:
    """Measure a timeline; where several of its ranks stand for one, times are their mean.

    The peak of several ranks is the highest of them: it decides whether they fit.
    """
    rank_spans: dict[int, list[Span]] = {rank: [] for group in groups.values() for rank in group}
    for span in timeline.spans:
        if span.rank in rank_spans:
            rank_spans[span.rank].append(span)
    phases = _phases(timeline, rank_spans)
    peaks = _peaks(timeline)
    single = {rank: _rank_quantities(spans, phases[rank]) for rank, spans in rank_spans.items()}
    ranks = {rank: _together([single[r] for r in group]) for rank, group in groups.items()}
    for rank, group in groups.items():
        known = [peaks[r] for r in group if r in peaks]
        if known:
            ranks[rank][PEAK] = max(known)
    step = _step(timeline, ranks, fmean(phases.values()))
    streams = {span.stream for spans in rank_spans.values() for span in spans}
    for stream, name in _RARE.items():
        if stream not in streams:
            for quantities in (step, *ranks.values()):
                del quantities[name]
    return Quantities(step=step, kinds=_kinds(rank_spans.values()), ranks=ranks)


def is_action(span: Span) -> bool:
    """Whether a span is part of the pipeline phase."""
    return span.stream == Stream.COMPUTE and span.kind in ACTIONS


def step_time(timeline: Timeline) -> float:
    """Seconds of the step: what `meta` says, or the median of its spread, or the last end.

    A measured run has many steps, and draws one.
    """
    stated = timeline.meta.get(STEP)
    if stated is None:
        stated = timeline.meta.get("spread", {}).get(STEP, {}).get("median")
    return timeline.end if stated is None else float(stated)


def _phases(timeline: Timeline, rank_spans: Mapping[int, Sequence[Span]]) -> dict[int, float]:
    """The phase of each rank's pipeline; all are of one where `meta.pipeline` does not say."""
    numbers = {int(rank): number for rank, number in timeline.meta.get("pipeline", {}).items()}
    together: dict[int, list[Span]] = {}
    for rank, spans in rank_spans.items():
        together.setdefault(numbers.get(rank, -1), []).extend(spans)
    length = {number: _phase(spans) for number, spans in together.items()}
    return {rank: length[numbers.get(rank, -1)] for rank in rank_spans}


def _phase(spans: Iterable[Span]) -> float:
    actions = [span for span in spans if is_action(span)]
    if not actions:
        return 0.0
    return max(span.end for span in actions) - min(span.start for span in actions)


def _step(
    timeline: Timeline, ranks: Mapping[int, Mapping[str, float]], phase: float
) -> dict[str, float]:
    quantities = {STEP: step_time(timeline), "pipeline_time_s": phase}
    if phase > 0.0:
        quantities["bubble_fraction"] = fmean(rank["idle_s"] for rank in ranks.values()) / phase
    for name in ("compute_s", "exposed_communication_s", *EXPOSED, "optimizer_s"):
        quantities[name] = fmean(rank[name] for rank in ranks.values())
    return quantities


def _exposed(spans: Sequence[Span], actions: Sequence[Span]) -> dict[str, float]:
    """Seconds that the rank waited for communication, together and by stream."""
    parts = {
        name: sum(span.exposed for span in spans if span.stream in streams)
        for name, streams in EXPOSED.items()
    }
    whole = sum(action.exposed for action in actions)
    named = sum(seconds for name, seconds in parts.items() if name != "exposed_p2p_s")
    unnamed = max(0.0, _unless_rounding(whole - named, whole))
    return {"exposed_communication_s": sum(parts.values()) + unnamed, **parts}


def _rank_quantities(spans: Sequence[Span], phase: float) -> dict[str, float]:
    actions = [span for span in spans if is_action(span)]
    reductions = [
        span for span in spans if span.kind in (SpanKind.REDUCE_GRAD, SpanKind.REDUCE_TIED)
    ]
    exposed = sum(span.exposed for span in actions)
    computing = [*actions, *_updates_between(spans, actions)]
    busy = _covered(computing)
    reduced = _covered([*computing, *reductions]) - busy
    return {
        "compute_s": sum(span.duration for span in actions) - exposed,
        **_exposed(spans, actions),
        "idle_s": _unless_rounding(phase - busy, phase),
        "gradient_reduction_s": _unless_rounding(reduced, phase),
        "optimizer_s": sum(s.duration - s.exposed for s in spans if s.kind == SpanKind.OPTIMIZER),
    }


def _updates_between(spans: Sequence[Span], actions: Sequence[Span]) -> list[Span]:
    """Updates before the rank's last action: pipelines without flush make one a micro-batch."""
    last = max((action.start for action in actions), default=0.0)
    return [span for span in spans if span.kind == SpanKind.OPTIMIZER and span.start < last]


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
    return {name: fmean(rank[name] for rank in ranks) for name in ranks[0]}


def _kinds(ranks: Iterable[Sequence[Span]]) -> dict[str, float]:
    lengths: dict[str, list[float]] = {}
    for spans in ranks:
        parts: dict[tuple[str, int], list[Span]] = {}
        for span in spans:
            if span.stream == Stream.COMPUTE:
                hidden = span.exposed if span.kind == SpanKind.OPTIMIZER else 0.0
                lengths.setdefault(span.kind, []).append(span.duration - hidden)
                if span.kind in ACTIONS:
                    lengths.setdefault(f"{span.kind}_exposed", []).append(span.exposed)
            elif span.stream == Stream.OFFLOAD:
                lengths.setdefault(span.kind, []).append(span.duration)
            elif span.kind in _ONCE:
                parts.setdefault((span.kind, span.stage), []).append(span)
        for (kind, _), sent in parts.items():
            lengths.setdefault(kind, []).append(_covered(sent))
    actions = [name for kind in ACTIONS for name in (kind, f"{kind}_exposed") if name in lengths]
    names = [*actions, *sorted(lengths.keys() - set(actions))]
    return {f"{kind}_mean_s": fmean(lengths[kind]) for kind in names}


def _peaks(timeline: Timeline) -> dict[int, float]:
    """Highest point of each rank's memory curve; a list in `meta`, one per rank, goes before it.

    That list comes from an allocator, which sees what a curve drawn from samples misses.
    """
    peaks = {curve.rank: max(curve.bytes) for curve in timeline.memory if curve.bytes}
    stated = timeline.meta.get(PEAK)
    if isinstance(stated, list | tuple) and len(stated) == len(timeline.ranks):
        peaks.update(zip(timeline.ranks, map(float, stated), strict=True))
    return peaks
