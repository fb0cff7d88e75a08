"""Draws what goes on beside actions: copies of activations, and exchanges that nothing hides.

    compute  |/////// 3F0 ///////|: exposed :|      |/////// 3B0 ///////////////|
    offload  |--------- 3F0, to the host ----|      |---- 3B0, from the host --|

Copies are spread over the whole action that they are beside, so they are drawn from its start on;
what they take longer than the compute is exposed. A backward's are needed layer by layer, from its
start on too. Messages to a partner stand beside the actions that have any, under the micro-batch
that moves; what is there when a backward begins is drawn ahead of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from parsim.arrays import Array
from parsim.schedule import Action, Kind
from parsim.schedule.actions import Move
from parsim.timelines.kinds import SpanKind, Stream
from parsim.timelines.timeline import Span

_KINDS = {Kind.F: SpanKind.OFFLOAD, Kind.B: SpanKind.RELOAD}


def copy_spans(
    actions: Iterable[Span],
    copies: Mapping[Kind, Array],
    exposed: Mapping[Kind, Array],
    moved: Mapping[Action, Move],
) -> Iterator[Span]:
    """Spans OFFLOAD beside forwards and RELOAD beside backwards, or both as they are `moved`.

    By kind of action `copies` (S,) are the seconds of a stage's, `exposed` (S,) what shows of them.
    """
    for action in actions:
        kind = Kind[action.kind]
        move = moved.get(Action(action.stage, kind, action.microbatch))
        shown = float(exposed[kind][action.stage])
        if move is not None:
            yield from _moves(action, move, float(copies[kind][action.stage]), shown)
            continue
        if moved and shown == 0.0:  # nothing moves, and no price says so
            continue
        seconds = float(copies[kind][action.stage])
        if seconds > 0.0:
            yield action._replace(
                stream=Stream.OFFLOAD,
                kind=_KINDS[kind],
                end=min(action.start + seconds, action.end),
                exposed=float(exposed[kind][action.stage]),
            )


def _moves(action: Span, move: Move, seconds: float, shown: float) -> Iterator[Span]:
    """Messages beside an action; of two, what it needs has come before it."""
    start, end = action.start, min(action.start + seconds, action.end)
    both = move.evicted >= 0 and move.loaded >= 0
    if move.evicted >= 0:
        yield action._replace(
            stream=Stream.OFFLOAD,
            kind=SpanKind.OFFLOAD,
            end=end,
            microbatch=move.evicted,
            exposed=shown,
        )
    if move.loaded >= 0:
        yield action._replace(
            stream=Stream.OFFLOAD,
            kind=SpanKind.RELOAD,
            start=start - seconds if both else start,
            end=start if both else end,
            microbatch=move.loaded,
            exposed=0.0 if both else shown,
        )


def without_copies(actions: Iterable[Span], exposed: Mapping[Kind, Array]) -> Iterator[Span]:
    """Actions as long as they are without what shows of the copies, which is at their end."""
    for action in actions:
        shown = float(exposed[Kind[action.kind]][action.stage])
        yield action._replace(end=action.end - shown, exposed=max(action.exposed - shown, 0.0))


_ROUNDING = 1e-9
"""Parts of an action that are smaller than this share are differences of equal numbers."""


def exchange_spans(
    actions: Iterable[Span],
    exchanged: Mapping[Kind, Array],
    routed: Mapping[Kind, Array] | None = None,
) -> Iterator[Span]:
    """Spans EXCHANGE on `tp`, ALL_TO_ALL on `ep`, SHARD on `dp` for the exposed part of each.

        compute  |///////////  3F0  ///////|: exposed :|
        tp                                 |---|           exchanges of activations (cp's too)
        ep                                     |--|        tokens to their experts and back
        dp                                        |----|   sharded parameters and gradients

    Where in an action its collectives really are is not known: their exposed parts are put at its
    end, one behind the other, as the action's own hatched part is.
    """
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
