"""Draws the communication inside actions that nothing hides, apart by stream.

    compute  |///////////  3F0  ///////|: exposed :|
    tp                                 |---|           exchanges of activations (cp's too)
    ep                                     |--|        tokens to their experts and back
    dp                                        |----|   sharded parameters and gradients

Where in an action its collectives really are is not known: their exposed parts are put at its end,
one behind the other, as the action's own hatched part is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from parsim.arrays import Array
from parsim.schedule import Kind
from parsim.timelines.kinds import SpanKind, Stream
from parsim.timelines.timeline import Span

_ROUNDING = 1e-9
"""Parts of an action that are smaller than this share are differences of equal numbers."""


def exchange_spans(
    actions: Iterable[Span],
    exchanged: Mapping[Kind, Array],
    routed: Mapping[Kind, Array] | None = None,
) -> Iterator[Span]:
    """Spans EXCHANGE on `tp`, ALL_TO_ALL on `ep`, SHARD on `dp` for the exposed part of each."""
    for action in actions:
        least = _ROUNDING * action.duration
        begin, end, kind = action.end - action.exposed, action.end, Kind[action.kind]
        border = min(begin + float(exchanged[kind][action.stage]), end)
        if end - border <= least:
            border = end
        share = 0.0 if routed is None else float(routed[kind][action.stage])
        tokens = border - share * (border - begin)
        if tokens - begin > least:
            yield _part(action, Stream.TP, SpanKind.EXCHANGE, begin, tokens)
        if border - tokens > least:
            yield _part(action, Stream.EP, SpanKind.ALL_TO_ALL, tokens, border)
        if end - border > least:
            yield _part(action, Stream.DP, SpanKind.SHARD, border, end)


def _part(action: Span, stream: str, kind: str, begin: float, end: float) -> Span:
    return Span(
        rank=action.rank,
        stream=stream,
        kind=kind,
        start=begin,
        end=end,
        stage=action.stage,
        microbatch=action.microbatch,
        exposed=end - begin,
    )
