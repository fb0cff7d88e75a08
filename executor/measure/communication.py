"""Names the collectives of one rank after what they are for, as the simulator's timeline does.

    stream  kind          what                                              where it is drawn
    tp      EXCHANGE      activations, and their gradients, of tensor ranks inside F B I W
                          or keys and values of context ranks
    ep      ALL_TO_ALL    tokens to their experts and back, and gradients   inside F B
    dp      UNSHARD       sharded parameters gathered for use               inside F B, before them
    dp      REDUCE_GRAD   a bucket of gradients, or those of one block      beside B, behind it
    dp      REDUCE_TIED   gradients of two copies of a tied table or model  before GRAD_NORM
    dp      GATHER_PARAM  shares of updated parameters                      inside OPTIMIZER
    offload OFFLOAD       a micro-batch's activations to a partner          beside F B
    offload RELOAD        and back                                          beside F B

A span on these streams is one collective or move, from its real start to its end. `Span.exposed`
of it is what the compute stream waited for; that of a compute span is the sum over what it waited
for.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from executor.measure.exposed import Transfer, exposed_of, overlap
from parsim.timelines.kinds import SpanKind, Stream
from parsim.timelines.timeline import Span

_BEHIND = (SpanKind.GRAD_NORM, SpanKind.OPTIMIZER)
"""What a rank does when all gradients are reduced, the first of them first."""
_KINDS_OF_STREAMS = {Stream.EP: SpanKind.ALL_TO_ALL, Stream.TP: SpanKind.EXCHANGE}
"""What every collective of a stream is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What is known beforehand of a rank's collectives.

    `tied` is how many gradients the rank adds up with a rank that holds the same parameters, its
    last collectives before the update. `buckets` is how many a stage sends at its REDUCE_GRAD.
    """

    tied: int = 0
    buckets: Mapping[int, int] = field(default_factory=dict)


def with_communication(
    spans: Sequence[Span], transfers: Sequence[Transfer], expected: Expected
) -> list[Span]:
    """The spans of one rank with those of its collectives, and what each compute span waited.

    Actions UNSHARD and REDUCE_GRAD give way to the collectives that they started.
    """
    if not transfers:
        return list(spans)
    rank = _Rank(spans, expected)
    moves = [transfer for transfer in transfers if transfer.stream == Stream.OFFLOAD]
    collectives = list(rank.named([each for each in transfers if each not in moves]))
    started = {(span.kind, span.stage) for span in collectives}
    parts = exposed_of(transfers)
    kept = [
        span._replace(exposed=min(span.duration, overlap(parts, span.start, span.end)))
        if span.stream == Stream.COMPUTE
        else span
        for span in spans
        if span.stream != Stream.DP or (span.kind, span.stage) not in started
    ]
    return [*kept, *collectives, *map(rank.moved, moves)]


class _Rank:
    """What a rank's own spans tell of the collectives between and inside them."""

    def __init__(self, spans: Sequence[Span], expected: Expected) -> None:
        self._expected = expected
        self._rank = spans[0].rank if spans else 0
        self._compute = _by_start(span for span in spans if span.stream == Stream.COMPUTE)
        self._actions = _by_start(span for span in spans if span.stream == Stream.DP)
        stages = {span.stage for span in spans if span.stage >= 0}
        self._only = stages.pop() if len(stages) == 1 else -1
        self._launches = [span for span in self._actions if span.kind == SpanKind.REDUCE_GRAD]
        self._update = next((s.start for s in self._compute if s.kind in _BEHIND), math.inf)

    def named(self, transfers: Sequence[Transfer]) -> Iterator[Span]:
        """One span for each transfer."""
        tied = self._tied(transfers)
        reductions = []
        for transfer in transfers:
            around = self._around(transfer)
            stage, microbatch = (around.stage, around.microbatch) if around else (self._only, -1)
            if around is not None and around.kind == SpanKind.GRAD_NORM:
                continue  # the sum over ranks is part of that span
            if transfer in tied:
                yield self._span(transfer._replace(stream=Stream.DP), SpanKind.REDUCE_TIED)
            elif kind := _KINDS_OF_STREAMS.get(transfer.stream):
                yield self._span(transfer, kind, stage, microbatch)
            elif around is not None and around.kind == SpanKind.OPTIMIZER:
                yield self._span(transfer, SpanKind.GATHER_PARAM)
            elif "gather" in transfer.operation.lower():
                yield self._span(transfer, SpanKind.UNSHARD, stage, microbatch)
            else:
                reductions.append((transfer, stage))
        yield from self._reduced(reductions)

    def _reduced(self, reductions: Sequence[tuple[Transfer, int]]) -> Iterator[Span]:
        """Reductions of gradients with the stages of their buckets, where these were launched."""
        stages = self._bucket_stages()
        for number, (transfer, stage) in enumerate(reductions):
            if self._launches:
                stage = stages[number] if number < len(stages) else self._launched(transfer)
            yield self._span(transfer, SpanKind.REDUCE_GRAD, stage)

    def moved(self, transfer: Transfer) -> Span:
        """The span of a micro-batch's activations that leave or come back."""
        return self._span(transfer, transfer.operation, transfer.stage, transfer.microbatch)

    def _span(self, transfer: Transfer, kind: str, stage: int = -1, microbatch: int = -1) -> Span:
        # all is waited for before the update, though the thread that ran it may notice late: what
        # seems to be waited for it after that is the update's own wait, for the norm of gradients
        end = min(transfer.end, self._update) if transfer.start < self._update else transfer.end
        return Span(
            self._rank,
            transfer.stream,
            kind,
            transfer.start,
            end,
            stage,
            microbatch,
            transfer.waited(until=end),
        )

    def _around(self, transfer: Transfer) -> Span | None:
        """The span during which a transfer starts."""
        for spans in (self._compute, self._actions):
            number = bisect_right(spans, transfer.start, key=lambda span: span.start) - 1
            if number >= 0 and transfer.start < spans[number].end:
                return spans[number]
        return None

    def _tied(self, transfers: Sequence[Transfer]) -> Sequence[Transfer]:
        before = [transfer for transfer in transfers if transfer.start < self._update]
        return before[-self._expected.tied :] if self._expected.tied else ()

    def _bucket_stages(self) -> list[int]:
        """Stages of the buckets in the order in which they are sent.

        Where gradients are summed over two axes, that is repeated when they have landed.
        """
        count = self._expected.buckets
        order = [s.stage for s in self._launches for _ in range(count.get(s.stage, 0))]
        return [*order, *sorted(order)]

    def _launched(self, transfer: Transfer) -> int:
        """The stage of the last action that reduces gradients and began before."""
        starts = [span.start for span in self._launches]
        return self._launches[max(bisect_right(starts, transfer.start) - 1, 0)].stage


def _by_start(spans: Iterator[Span]) -> list[Span]:
    return sorted(spans, key=lambda span: span.start)
