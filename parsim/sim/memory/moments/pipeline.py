"""Moments of a rank's step that can be its highest in eager PyTorch, as counts of what lives then.

    loss forward head layer inputs embedding reduce update               see `..eager_peaks`
    weights first_weights                                                see `.weights`
    and those whose parameters and gradients travel                      see `.sharded`

I of the first stage does nothing, as nobody needs the gradient of tokens: its W is a whole
backward.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from parsim.arrays import Flags
from parsim.schedule import Kind, Schedule


class Moment(NamedTuple):
    """What lives on a rank at one moment, as counts.

    Micro-batches `in_flight` per chunk, those of them that are `waiting` for their W, `softmax` of
    them with their softmax on the last stage, chunks `with_gradients` that exist, and what the
    moment is: its buffers. `reduced` are the chunks whose gradients were sent: what that needs
    beside them stays until all are waited for.
    `resharding`: in the last backward, whose layers let gathered parameters go. `ending` is the
    chunk whose I is about to end.
    """

    in_flight: tuple[int, ...]
    waiting: tuple[int, ...]
    softmax: int
    with_gradients: tuple[bool, ...]
    what: str
    reduced: tuple[bool, ...]
    resharding: bool = False
    ending: int = -1


def moments(
    schedule: Schedule,
    rank: int,
    with_blocks: Flags,
    *,
    sharded: bool = False,
    head_waits: bool = True,
) -> list[Moment]:
    """The distinct moments of a rank that can be its highest, in order.

    `with_blocks` (S,) are the stages with layers between embedding and head; `sharded` says that
    layers are gathered and reduced one by one in their backward, `head_waits` that the softmax
    stays from I to W, as it does where the head is trained.
    """
    walk = _Walk(schedule, rank, with_blocks, sharded=sharded, head_waits=head_waits)
    return sorted(set(_walk(walk, schedule, rank)))


def _walk(walk: _Walk, schedule: Schedule, rank: int) -> Iterator[Moment]:
    for action in schedule.ranks[rank]:
        if action.kind == Kind.F:
            yield from walk.forward(action.stage)
        elif action.kind == Kind.B or (action.kind == Kind.W and schedule.is_first(action.stage)):
            yield from walk.backward(action.stage)
        elif action.kind == Kind.I and not schedule.is_first(action.stage):
            yield from walk.inputs(action.stage)
        elif action.kind == Kind.W:
            yield from walk.weights(action.stage)
    yield walk.moment("update")


class _Walk:
    """Counts along a rank's actions; each of them yields its moments."""

    def __init__(
        self,
        schedule: Schedule,
        rank: int,
        with_blocks: Flags,
        *,
        sharded: bool,
        head_waits: bool,
    ) -> None:
        self._stages = list(schedule.stages_on(rank))
        self._schedule = schedule
        self._with_blocks = with_blocks
        self._sharded = sharded
        self._head_waits = head_waits
        self._in_flight = [0] * len(self._stages)
        self._waiting = [0] * len(self._stages)
        self._with_gradients = [False] * len(self._stages)
        self._left = [len(schedule.microbatches_of(stage)) for stage in self._stages]
        self._softmax = 0

    def moment(self, what: str) -> Moment:
        counts = tuple(self._in_flight), tuple(self._waiting)
        reduced = tuple(what != "update" and not left for left in self._left)
        gradients = tuple(self._with_gradients)
        last = self._sharded and self._left == [1]
        return Moment(*counts, self._softmax, gradients, what, reduced, resharding=last)

    def forward(self, stage: int) -> Iterator[Moment]:
        self._in_flight[self._stages.index(stage)] += 1
        if self._sharded:
            yield from map(self.moment, ("gather_forward", "head_forward"))
        yield self.moment("loss" if self._schedule.is_last(stage) else "forward")
        self._softmax += self._schedule.is_last(stage)

    def backward(self, stage: int) -> Iterator[Moment]:
        yield from self._top(stage)
        self._softmax -= self._schedule.is_last(stage)
        yield from self._layer(stage)
        chunk = self._stages.index(stage)
        self._with_gradients[chunk] = True
        self._in_flight[chunk] -= 1
        if self._sharded:
            yield from map(self.moment, ("scatter_first", "scatter_ends"))
        if self._schedule.is_first(stage):
            yield self.moment("embedding")
        yield from self._done(chunk)

    def inputs(self, stage: int) -> Iterator[Moment]:
        yield from self._top(stage)
        yield from self._layer(stage)
        self._waiting[self._stages.index(stage)] += 1
        yield self.moment("inputs")._replace(ending=self._stages.index(stage))
        self._softmax -= self._schedule.is_last(stage) and not self._head_waits

    def weights(self, stage: int) -> Iterator[Moment]:
        chunk = self._stages.index(stage)
        added = self._with_gradients[chunk]  # the first ones are not: they stay as they are
        self._with_gradients[chunk] = True
        yield self.moment("weights" if added else "first_weights")
        self._softmax -= self._schedule.is_last(stage) and self._head_waits
        self._in_flight[chunk] -= 1
        self._waiting[chunk] -= 1
        yield from self._done(chunk)

    def _done(self, chunk: int) -> Iterator[Moment]:
        self._left[chunk] -= 1
        if not self._left[chunk]:
            yield self.moment("reduce")

    def _top(self, stage: int) -> Iterator[Moment]:
        if self._schedule.is_last(stage):
            yield self.moment("head")
            if self._sharded:
                yield self.moment("gather_ends")

    def _layer(self, stage: int) -> Iterator[Moment]:
        if self._with_blocks[stage]:
            yield self.moment("layer")
            if self._sharded:
                yield from map(self.moment, ("gather", "below", "layer_below", "scatter"))
