"""What communication really ran on this rank during a step, and when its compute waited for it.

Torch's profiler tells it, restricted to its named ranges ("user scope"): it then looks at nothing
that computes, and costs some 10 us for each range. On gloo a range such as `gloo:all_reduce` lies
on the worker thread of the process group and goes from when the collective leaves the queue to
its end, whoever posted it: Python, DTensor, or the C++ of DistributedDataParallel. On NCCL the
kernels `ncclDevKernel_*` on the device are taken, with all other kernels as the compute stream's
work; the profiler then has to trace kernels, which costs more.

Other ways were tried or read: wrapping the methods of process groups misses what C++ posts;
a dispatch mode sees every operator, in Python; the profiler without the restriction records each
operator (a thousand times as many events). None of them would tell when a collective starts.

A range does not name its group, but each group of gloo has threads, and each of NCCL a stream, of
its own. So where both tensor and data ranks exchange something, tiny collectives in their groups
teach beforehand which those are (`learn`). What runs on others is taken to be the tensor ranks' on
gloo, as DTensor may use the group of an equal mesh that was built before; and the data ranks' on
NCCL, as `fully_shard` gathers and reduces on streams of its own.

Messages between stages are no collectives, and the actions tell of them; those of a ring between
context-parallel ranks, and their all-to-alls, are ranges of our own on gloo, from their post to the
end of the wait for them, and kernels in their group's stream on NCCL.

When compute waits is taken from the functions that wait (gloo), or is where no kernel ran (NCCL).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from threading import current_thread
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

from executor.devices.accelerator import accelerator
from executor.measure.exposed import Interval, Transfer, attribute, gaps
from executor.parallel.ring import CONTEXT_RANGE
from executor.pipeline.outbox import BESIDE
from executor.torch_internals import profiler
from executor.torch_internals.distributed import WAITS
from parsim.timelines.kinds import Stream

LESSONS = 16
"""Pairs of collectives by which a group's channels are learnt; a group of gloo has two threads."""


_OTHERS = ("send", "recv", "SendRecv", "barrier")


class Range(NamedTuple):
    """A named range or kernel of the profiler, seconds of the host's monotonic clock.

    `channel` is the thread, or the stream of the device, that it ran on.
    """

    name: str
    start: float
    end: float
    channel: int
    on_device: bool


class Traffic:
    """Watches the communication of one rank between `start` and `stop`, as often as wanted.

    `groups` holds the process groups of more than one rank by stream, `tp` and `dp`, or only
    those streams that occur: where there is one, everything is its. Context-parallel ranks exchange
    activations as tensor-parallel ones do, on `tp`. An all-to-all is on stream `ep`; `routed` are
    the groups that have them, which may be those of another stream too.
    """

    def __init__(
        self,
        groups: Mapping[str, Sequence[dist.ProcessGroup]],
        device: torch.device,
        routed: Sequence[dist.ProcessGroup] = (),
    ) -> None:
        self.waits: list[Interval] = []
        self._routed_groups = tuple(routed)
        self._routed: set[int] = set()
        self._groups = dict(groups)
        self._device = device
        self._alone = dist.get_world_size() == 1
        self._asked = accelerator(device)
        self._kernels = self._asked.queued and dist.get_backend() == "nccl"
        self.blind = False
        """Whether the profiler sees none of the device's kernels, and so no communication."""
        self._channels: dict[int, str] = {}
        self._originals: list[tuple[Any, str, Any]] = []

    def learn(self) -> None:
        """Find the channels of the groups, and warm up; every rank must call it."""
        if self._alone:
            return
        for stream, groups in self._groups.items():
            profiler.start_ranges(kernels=self._kernels)
            if len(self._groups) > 1:
                self._practise(groups)
            practised = self._practised()
            self.blind = self._kernels and not practised
            self._channels.update(dict.fromkeys(practised, stream))
        if self._kernels and self._routed_groups:
            profiler.start_ranges(kernels=True)
            self._practise(self._routed_groups)
            self._routed.update(self._practised())

    def _practised(self) -> list[int]:
        return [event.channel for event in self._ranges() if collective(event.name)]

    def _practise(self, groups: Iterable[dist.ProcessGroup]) -> None:
        for group in groups:
            for _ in range(LESSONS):
                values = [torch.zeros(1, device=self._device) for _ in range(2)]
                works = [dist.all_reduce(value, group=group, async_op=True) for value in values]
                for work in works:
                    work.wait()
        self._asked.synchronize()

    def start(self) -> None:
        """Watch from now on."""
        self.waits.clear()
        if self._alone:
            return
        if not self._asked.queued:
            for owner, name in WAITS:
                original = getattr(owner, name)
                self._originals.append((owner, name, original))
                setattr(owner, name, self._timed(original))
        profiler.start_ranges(kernels=self._kernels)

    def stop(self) -> list[Transfer]:
        """What ran since `start`, each with the parts that the compute stream waited for.

        Collectives only: of messages the actions of a pipeline tell.
        """
        for owner, name, original in self._originals:
            setattr(owner, name, original)
        self._originals.clear()
        ranges = [] if self._alone else self._ranges()
        transfers = list(self._transfers(ranges))
        if not transfers:
            return []
        if not self._kernels:
            return attribute(transfers, self.waits, extend=True)
        busy = [(r.start, r.end) for r in ranges if r.on_device and collective(r.name) is None]
        span = (
            min(transfer.start for transfer in transfers),
            max(transfer.end for transfer in transfers),
        )
        return attribute(transfers, gaps(busy, span), extend=False)

    def _timed(self, original: Callable[..., Any]) -> Callable[..., Any]:
        waits, clock = self.waits, time.perf_counter

        def wait(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
            if current_thread().name == BESIDE:
                return original(*args, **kwargs)
            begin = clock()
            try:
                return original(*args, **kwargs)
            finally:
                waits.append((begin, clock()))

        return wait

    def _ranges(self) -> list[Range]:
        """End the profiler's session; its clock is the system's, read here beside ours."""
        behind = time.time_ns() - time.perf_counter_ns()
        return [
            Range(
                event.name(),
                (event.start_ns() - behind) * 1e-9,
                (event.end_ns() - behind) * 1e-9,
                event.device_resource_id() if on_device else event.start_thread_id(),
                on_device,
            )
            for event, on_device in profiler.stop_ranges()
        ]

    def _transfers(self, ranges: Sequence[Range]) -> Iterator[Transfer]:
        context_ranges = [event for event in ranges if event.name == CONTEXT_RANGE]
        for event in ranges:
            if event.name == CONTEXT_RANGE and not self._kernels:
                yield Transfer(Stream.TP, "send_recv", event.start, event.end)
                continue
            operation = collective(event.name)
            if not operation or event.on_device != self._kernels:
                continue
            if operation == "all_to_all" and any(inside(event, other) for other in context_ranges):
                continue  # of heads, not of experts' rows
            message, channel = operation == "SendRecv", event.channel
            # NCCL's all-to-all is messages too; a pipeline's are on other channels
            if operation == "all_to_all" or (message and channel in self._routed):
                yield Transfer(Stream.EP, operation, event.start, event.end)
            # of messages only those between context ranks: no others are in their group
            elif operation not in _OTHERS or (message and self._channels.get(channel) == Stream.TP):
                yield Transfer(self._stream(channel), operation, event.start, event.end)

    def _stream(self, channel: int) -> str:
        if len(self._groups) == 1:
            return next(iter(self._groups))
        unknown = Stream.TP if self._groups and not self._kernels else Stream.DP
        return self._channels.get(channel, unknown)


def inside(event: Range, other: Range) -> bool:
    """Whether an event's middle is within another one."""
    return other.start <= 0.5 * (event.start + event.end) <= other.end


def collective(name: str) -> str | None:
    """The operation of a range or kernel that communicates, such as `all_reduce`; else None.

    >>> collective("gloo:all_gather"), collective("ncclDevKernel_AllReduce_Sum_f32_RING_LL")
    ('all_gather', 'AllReduce')
    """
    if name.startswith("gloo:"):
        return name.removeprefix("gloo:")
    for prefix in ("ncclDevKernel_", "ncclKernel_"):
        if name.startswith(prefix):
            return name.removeprefix(prefix).partition("_")[0].partition("(")[0]
    return None
