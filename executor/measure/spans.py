"""Records what each rank did when, action by action, as a Timeline like the simulator's.

While a recorder is active it stands in for two functions that torch's runtime calls: the one
around every action and the one that waits for messages. So waiting is told from work:

    what the host does   | enter 3F0 | wait for 2F0's output | compute   | leave
    spans on rank 3      |           | recv: 3RECV_F0        | compute: 3F0 |

Times are taken by the host on CPU, and by events on the device's queue on CUDA, where they are
read after the step. Collectives come from `Traffic`, and have their names from
`executor.measure.communication`. A SEND is the handing over of its message, all of which the
compute stream waits for; a RECV is the wait for one, and its exposed part begins with the SEND, for
before that there is nothing to receive (see `executor.measure.gather`). Nothing is recorded, and
nothing costs anything, outside the `with` block.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from executor.devices.accelerator import Mark, accelerator
from executor.measure.communication import Expected, with_communication
from executor.measure.exposed import Transfer
from executor.measure.gather import RankPlace, gather_timeline
from executor.measure.traffic import Traffic
from executor.pipeline.partner import Moved, Partner
from executor.torch_internals import pipelining
from executor.torch_internals.self_test import require_compatible
from parsim.schedule import Action, Kind
from parsim.timelines.kinds import SpanKind, Stream
from parsim.timelines.timeline import Span, Timeline, ordered

_MESSAGE = {Kind.F: SpanKind.RECV_F, Kind.B: SpanKind.RECV_B, Kind.I: SpanKind.RECV_B}
"""The message that a compute action may wait for."""

_STREAMS = {Kind.SEND_F: Stream.SEND, Kind.SEND_B: Stream.SEND}
"""Lanes by kind, beside compute for F B I W and dp for what concerns a whole stage."""


@dataclass(slots=True)
class _Record:
    """One block; `waited` is when it began to wait for a message, None if it did not."""

    name: str
    start: Mark
    end: Mark
    waited: Mark | None = None
    resumed: Mark | None = None


class SpanRecorder:
    """Records one step of one rank inside a `with` block, then gathers all ranks' spans.

    `group` holds the ranks whose spans are gathered, `rank_place` says where this one stands among
    them (see `gather_timeline`), `expected` what collectives it will have, `first` from which
    micro-batch on each stage counts its own (0 where it is not named), `partner` who keeps this
    rank's activations or whose it keeps. `measure` and `add` record what happens outside of the
    pipeline, such as OPTIMIZER. Each `with` begins anew. While
    recording, torch's own ranges `PP:...` are not written to its profiler.
    """

    def __init__(
        self,
        *,
        group: dist.ProcessGroup,
        device: torch.device,
        traffic: Traffic,
        rank_place: RankPlace | None = None,
        expected: Expected | None = None,
        first: Mapping[int, int] | None = None,
        partner: Partner | None = None,
    ) -> None:
        require_compatible()
        self._group = group
        self._device = device
        self._asked = accelerator(device)
        self._traffic = traffic
        self._rank = dist.get_rank(group)
        self._rank_place = rank_place or RankPlace(pipeline_rank=self._rank)
        self._expected = expected or Expected()
        self._first = dict(first or {})
        self._partner = partner
        self.mark: Callable[[], Mark] = self._asked.mark
        self._originals: dict[str, Any] = {}
        self._current: _Record | None = None
        self._records: list[_Record] = []
        self._extra: list[tuple[str, int, int, Mark, Mark]] = []
        self._drains: list[tuple[Mark, Mark]] = []
        self._transfers: list[Transfer] = []

    def __enter__(self) -> SpanRecorder:
        self._records.clear()
        self._extra.clear()
        self._drains.clear()
        self._origin, self._reference = self._asked.origin()
        stand_ins = {pipelining.ACTION_SPAN: self._block, pipelining.WAIT: self._wait}
        for name, stand_in in stand_ins.items():
            self._originals[name] = getattr(pipelining.SCHEDULES, name)
            setattr(pipelining.SCHEDULES, name, stand_in)
        self._traffic.start()
        return self

    def __exit__(self, *_: object) -> None:
        for name, original in self._originals.items():
            setattr(pipelining.SCHEDULES, name, original)
        self._originals.clear()
        self._current = None
        self._asked.synchronize()
        self._transfers = self._traffic.stop()
        if self._partner is not None:
            self._transfers += map(_moved, self._partner.moves)

    @contextmanager
    def measure(self, kind: str) -> Iterator[None]:
        """Record the block as one span of the compute stream."""
        start = self.mark()
        yield
        self.add(kind, start, self.mark())

    def add(
        self, kind: str, start: Mark, end: Mark, *, stage: int = -1, microbatch: int = -1
    ) -> None:
        """Record a span of the compute stream from its marks."""
        self._extra.append((kind, stage, microbatch, start, end))

    def waited(self, start: Mark, end: Mark) -> None:
        """Tell of a wait for communication that no function of Python does."""
        if isinstance(start, float) and isinstance(end, float):
            self._traffic.waits.append((start, end))

    def spans(self) -> tuple[Span, ...]:
        """This rank's spans on this rank's own clock (host seconds of the monotonic clock)."""
        spans = [span for record in self._records for span in self._from_record(record)]
        for kind, stage, microbatch, start, end in self._extra:
            begin, stop = self._seconds(start), self._seconds(end)
            spans.append(Span(self._rank, Stream.COMPUTE, kind, begin, stop, stage, microbatch))
        return ordered(with_communication(spans, self._transfers, self._expected))

    def gather(self) -> Timeline | None:
        """All ranks' spans on one clock, seconds from the first span's start; None but on rank 0.

        Every rank of the group must call it.
        """
        messages = [r for r in self._records if "SEND_" in r.name or "RECV_" in r.name]
        notes = {
            # handing SENDs and RECVs over, which may block the host on gloo
            "post_s": self._sum((record.start, record.end) for record in messages),
            # after the last action, until all SENDs are gone
            "drain_s": self._sum(self._drains),
        }
        return gather_timeline(
            self.spans(), notes, self._rank_place, group=self._group, device=self._device
        )

    def _seconds(self, mark: Mark) -> float:
        return self._origin + self._asked.seconds(self._reference, mark)

    def _sum(self, intervals: Iterable[tuple[Mark, Mark]]) -> float:
        return sum(self._seconds(end) - self._seconds(start) for start, end in intervals)

    @contextmanager
    def _block(self, name: str, *_: object) -> Iterator[None]:
        """What stands around one action in place of torch's profiler range."""
        start = self.mark()
        self._current = record = _Record(name, start, start)
        yield
        record.end = self.mark()
        self._current = None
        self._records.append(record)

    def _wait(self, work: list[dist.Work]) -> None:
        known = len(self._traffic.waits)
        before = self.mark()
        self._originals[pipelining.WAIT](work)
        after = self.mark()
        del self._traffic.waits[known:]  # a wait for messages, not for a collective
        if self._current is None:
            self._drains.append((before, after))
        else:
            self._current.waited, self._current.resumed = before, after

    def _from_record(self, record: _Record) -> Iterator[Span]:
        """One span for the action, and one for the message it waited for.

        A RECV is recorded where its message is waited for; its posting only counts in `post_s`.
        """
        stage, kind, microbatch = Action.parse(record.name.removeprefix(pipelining.SPAN_PREFIX))
        if kind in (Kind.RECV_F, Kind.RECV_B):
            return
        if microbatch >= 0:
            microbatch += self._first.get(stage, 0)
        start, end = self._seconds(record.start), self._seconds(record.end)
        if record.waited is not None and record.resumed is not None:
            waited, start = self._seconds(record.waited), self._seconds(record.resumed)
            yield Span(self._rank, Stream.RECV, _MESSAGE[kind], waited, start, stage, microbatch)
        stream = Stream.COMPUTE if kind.is_compute else _STREAMS.get(kind, Stream.DP)
        exposed = end - start if stream == Stream.SEND else 0.0
        yield Span(self._rank, stream, kind.name, start, end, stage, microbatch, exposed)


def _moved(move: Moved) -> Transfer:
    """A micro-batch's activations on their way, as one of the rank's transfers."""
    kind = SpanKind.OFFLOAD if move.out else SpanKind.RELOAD
    waited = (move.waited,)
    return Transfer(Stream.OFFLOAD, kind, move.start, move.end, waited, move.stage, move.microbatch)
