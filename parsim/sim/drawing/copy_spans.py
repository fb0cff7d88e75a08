"""Draws copies of activations to the host's memory and back, on a lane of their own.

    compute  |/////// 3F0 ///////|: exposed :|      |/////// 3B0 ///////////////|
    offload  |--------- 3F0, to the host ----|      |---- 3B0, from the host --|

Copies are spread over the whole action that they are beside, so they are drawn from its start on;
what they take longer than the compute is exposed. A backward's are needed layer by layer, from its
start on too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from parsim.arrays import Array
from parsim.schedule import Kind
from parsim.timelines.kinds import SpanKind, Stream
from parsim.timelines.timeline import Span

_KINDS = {Kind.F: SpanKind.OFFLOAD, Kind.B: SpanKind.RELOAD}


def copy_spans(
    actions: Iterable[Span], copies: Mapping[Kind, Array], exposed: Mapping[Kind, Array]
) -> Iterator[Span]:
    """Spans OFFLOAD beside forwards and RELOAD beside backwards.

    By kind of action `copies` (S,) are the seconds of a stage's, `exposed` (S,) what shows of them.
    """
    for action in actions:
        kind = Kind[action.kind]
        seconds = float(copies[kind][action.stage])
        if seconds > 0.0:
            yield action._replace(
                stream=Stream.OFFLOAD,
                kind=_KINDS[kind],
                end=min(action.start + seconds, action.end),
                exposed=float(exposed[kind][action.stage]),
            )


def without_copies(actions: Iterable[Span], exposed: Mapping[Kind, Array]) -> Iterator[Span]:
    """Actions as long as they are without what shows of the copies, which is at their end."""
    for action in actions:
        shown = float(exposed[Kind[action.kind]][action.stage])
        yield action._replace(end=action.end - shown, exposed=max(action.exposed - shown, 0.0))
