"""Records what each rank did when, action by action, as a Timeline like the simulator's.

While a recorder is active it stands in for two functions that torch's runtime calls: the one
around every action and the one that waits for messages. So waiting is told from work:

    what the host does   | enter 3F0 | wait for 2F0's output | compute   | leave
    spans on rank 3      |           | recv: 3RECV_F0        | compute: 3F0 |

Times are taken by the host on CPU, and by events on the device's queue on CUDA, where they are
read after the step. Nothing is recorded, and nothing costs anything, outside the `with` block.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeAlias

import torch
import torch.distributed as dist

from executor import compat
from executor.gather import gather_timeline
from executor.reduce_grad import GradReducer
from parsim.schedule import Action, Kind
from parsim.timeline import Span, Timeline, ordered

Mark: TypeAlias = float | torch.cuda.Event
"""A moment: host seconds on CPU, an event in the device's queue on CUDA."""

_MESSAGE = {Kind.F: "RECV_F", Kind.B: "RECV_B", Kind.I: "RECV_B"}
"""The message that a compute action may wait for."""

_STREAMS = {Kind.SEND_F: "send", Kind.SEND_B: "send"}
"""Lanes by kind, beside compute for F B I W and dp for what concerns a whole stage."""


class _Record(NamedTuple):
    """One finished block."""

    name: str
    start: Mark
    waited: Mark | None  # when it began to wait for a message, None if it did not
    resumed: Mark | None
    end: Mark


class SpanRecorder:
    """Records one step of one rank inside a `with` block, then gathers all ranks' spans.

    `measure` adds spans for what happens outside of the pipeline, such as OPTIMIZER. Each `with`
    begins anew. While recording, torch's own ranges `PP:...` are not written to its profiler.
    """

    def __init__(
        self,
        *,
        group: dist.ProcessGroup,
        device: torch.device,
        reducer: GradReducer | None = None,
    ) -> None:
        compat.require_compatible()
        self._group = group
        self._device = device
        self._reducer = reducer
        self._rank = dist.get_rank(group)
        self._mark: Callable[[], Mark] = _event if device.type == "cuda" else time.perf_counter
        self._originals: dict[str, Any] = {}
        self._current: _Block | None = None
        self._forget()

    def __enter__(self) -> SpanRecorder:
        self._forget()
        self._origin, self._reference = self._now()
        for name, stand_in in ((compat.ACTION_SPAN, self._block), (compat.WAIT, self._wait)):
            self._originals[name] = getattr(compat.SCHEDULES, name)
            setattr(compat.SCHEDULES, name, stand_in)
        if self._reducer is not None:
            self._reducer.on_launch = self._launched
        return self

    def __exit__(self, *_: object) -> None:
        for name, original in self._originals.items():
            setattr(compat.SCHEDULES, name, original)
        self._originals.clear()
        self._current = None
        if self._reducer is not None:
            self._reducer.on_launch = None

    @contextmanager
    def measure(
        self, kind: str, *, stream: str = "compute", stage: int = -1, microbatch: int = -1
    ) -> Iterator[None]:
        """Record the block as one span; may be used outside of a pipeline too."""
        start = self._mark()
        yield
        self._extra.append((stream, kind, stage, microbatch, start, self._mark()))

    def spans(self) -> tuple[Span, ...]:
        """This rank's spans on this rank's own clock (host seconds of the monotonic clock)."""
        self._settle()
        found = [span for record in self._records for span in self._from_record(record)]
        found += self._from_reductions()
        for stream, kind, stage, microbatch, start, end in self._extra:
            begin, stop = self._seconds(start), self._seconds(end)
            found.append(Span(self._rank, stream, kind, begin, stop, stage, microbatch))
        return ordered(found)

    def gather(self) -> Timeline | None:
        """All ranks' spans on one clock, seconds from the first span's start; None but on rank 0.

        Every rank of the group must call it.
        """
        notes = {"post_s": self._posting(), "drain_s": self._draining()}
        return gather_timeline(self.spans(), notes, group=self._group, device=self._device)

    def _forget(self) -> None:
        self._records: list[_Record] = []
        self._drains: list[tuple[Mark, Mark]] = []
        self._extra: list[tuple[str, str, int, int, Mark, Mark]] = []
        self._reductions: dict[int, tuple[Mark, torch.futures.Future]] = {}
        self._reduced: dict[int, Mark] = {}

    def _now(self) -> tuple[float, torch.cuda.Event | None]:
        """The host's clock and, on CUDA, an event at the same moment."""
        if self._device.type != "cuda":
            return 0.0, None
        torch.cuda.synchronize(self._device)
        event = _event()
        event.synchronize()
        return time.perf_counter(), event

    def _seconds(self, mark: Mark) -> float:
        if self._reference is None:
            return float(mark)
        return self._origin + float(self._reference.elapsed_time(mark)) * 1e-3

    def _block(self, name: str, *_: object) -> _Block:
        return _Block(self, name)

    def _wait(self, work: list[dist.Work]) -> None:
        before = self._mark()
        self._originals[compat.WAIT](work)
        after = self._mark()
        if self._current is None:
            self._drains.append((before, after))
        else:
            self._current.waited, self._current.resumed = before, after

    def _launched(self, stage: int, work: dist.Work) -> None:
        """Take the end of a reduction when it happens, not when somebody waits for it."""

        def finished(_: object) -> None:
            self._reduced[stage] = self._mark()

        self._reductions[stage] = (self._mark(), work.get_future().then(finished))

    def _settle(self) -> None:
        """Wait until every mark can be read."""
        for _, finished in self._reductions.values():
            finished.wait()
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)

    def _from_record(self, record: _Record) -> Iterator[Span]:
        """One span for the action, and one for the message it waited for.

        A RECV is recorded where its message is waited for; its posting only counts in `post_s`.
        """
        stage, kind, microbatch = Action.parse(record.name.removeprefix(compat.SPAN_PREFIX))
        if kind in (Kind.RECV_F, Kind.RECV_B) or stage in self._whole_stage(kind):
            return
        start, end = self._seconds(record.start), self._seconds(record.end)
        if record.waited is not None and record.resumed is not None:
            waited, start = self._seconds(record.waited), self._seconds(record.resumed)
            yield Span(self._rank, "recv", _MESSAGE[kind], waited, start, stage, microbatch)
        stream = "compute" if kind.is_compute else _STREAMS.get(kind, "dp")
        yield Span(self._rank, stream, kind.name, start, end, stage, microbatch)

    def _whole_stage(self, kind: Kind) -> Collection[int]:
        """Stages whose REDUCE_GRAD is known from its launch to its end, beyond its posting."""
        return self._reductions if kind == Kind.REDUCE_GRAD else ()

    def _from_reductions(self) -> Iterator[Span]:
        for stage, (start, _) in self._reductions.items():
            begin, end = self._seconds(start), self._seconds(self._reduced[stage])
            yield Span(self._rank, "dp", Kind.REDUCE_GRAD.name, begin, end, stage)

    def _posting(self) -> float:
        """Seconds spent handing SENDs and RECVs over, which may block the host on gloo."""
        return sum(
            self._seconds(record.end) - self._seconds(record.start)
            for record in self._records
            if "SEND_" in record.name or "RECV_" in record.name
        )

    def _draining(self) -> float:
        """Seconds spent after the last action until all SENDs are gone."""
        return sum(self._seconds(end) - self._seconds(start) for start, end in self._drains)


class _Block:
    """What stands around one action in place of torch's profiler range."""

    __slots__ = ("name", "recorder", "resumed", "start", "waited")

    def __init__(self, recorder: SpanRecorder, name: str) -> None:
        self.recorder = recorder
        self.name = name
        self.waited: Mark | None = None
        self.resumed: Mark | None = None

    def __enter__(self) -> None:
        self.recorder._current = self
        self.start = self.recorder._mark()

    def __exit__(self, *_: object) -> None:
        end = self.recorder._mark()
        self.recorder._current = None
        record = _Record(self.name, self.start, self.waited, self.resumed, end)
        self.recorder._records.append(record)


def _event() -> torch.cuda.Event:
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event
