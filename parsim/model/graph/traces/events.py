"""The events of a torch profiler's trace: calls on a thread from start to end, and their seconds.

    thread 1   [module Linear_0          ]     [autograd: AddmmBackward0   ]
                 [aten::linear         ]         [AddmmBackward0         ]
                   [aten::addmm] [launch]          [aten::mm]
    device                          [kernel]

A call is an operator with all that it called; a launch in it names its kernel by a correlation.

Source: Kineto's Chrome trace (pytorch/kineto, libkineto/src/output_json.cpp), as torch 2 writes it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import TypeGuard

from parsim.errors import ModelError, shown

OPERATOR = "cpu_op"
LAUNCHES = ("cuda_runtime", "cuda_driver")
ON_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
MODULE = "nn.Module: "
"""What the name of a module's call begins with, where the stack was recorded."""

MOST_US = 1e17
"""Microseconds since 1970 stay far below."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Event:
    """A span of a trace: microseconds, and what the profiler wrote beside it."""

    name: str
    category: str
    thread: tuple[str, str]
    start: float
    duration: float
    details: Mapping[str, object]

    def number(self, key: str) -> int | None:
        """A whole number among the details."""
        value = self.details.get(key)
        return value if isinstance(value, int) and not isinstance(value, bool) else None


@dataclass(slots=True, kw_only=True, eq=False)
class Call:
    """An operator that no other called, what it called, and the innermost module around it."""

    top: Event
    module: Event | None
    inner: list[Event] = field(default_factory=list)

    @property
    def events(self) -> list[Event]:
        """The operator and what it called, in order of their starts."""
        return [self.top, *self.inner]


def is_trace(document: object) -> TypeGuard[Mapping[str, object]]:
    """Whether a document is a trace rather than a model file."""
    return isinstance(document, dict) and "traceEvents" in document


def read_events(document: Mapping[str, object]) -> list[Event]:
    """The spans of a trace that tell of operators, in order of their starts, callers first.

    Raises:
        ModelError: it has no list of events, or one of them has no time.
    """
    entries = document["traceEvents"]
    if not isinstance(entries, list):
        raise ModelError("traceEvents must be a list")
    events = [
        _event(number, entry)
        for number, entry in enumerate(entries)
        if isinstance(entry, dict) and entry.get("ph") == "X" and _of_use(entry)
    ]
    return sorted(events, key=lambda event: (event.start, -event.duration))


def calls(events: list[Event]) -> list[Call]:
    """Operators that no other one called, with what each called, in order of their starts."""
    threads: dict[tuple[str, str], list[Event]] = {}
    for event in events:
        if event.category not in ON_DEVICE:
            threads.setdefault(event.thread, []).append(event)
    nested = chain.from_iterable(map(_nested, threads.values()))
    return sorted(nested, key=lambda call: call.top.start)


def _nested(thread: list[Event]) -> Iterator[Call]:
    modules: list[Event] = []
    call: Call | None = None
    for event in thread:
        while modules and modules[-1].start + modules[-1].duration <= event.start:
            modules.pop()
        if call is not None and event.start < call.top.start + call.top.duration:
            call.inner.append(event)
        elif event.name.startswith(MODULE):
            modules.append(event)
        elif event.category == OPERATOR:
            call = Call(top=event, module=modules[-1] if modules else None)
            yield call


def _of_use(entry: Mapping[str, object]) -> bool:
    category, name = entry.get("cat"), entry.get("name")
    if not isinstance(category, str) or not isinstance(name, str):
        return False
    return category in (OPERATOR, *LAUNCHES, *ON_DEVICE) or name.startswith(MODULE)


def _event(number: int, entry: Mapping[str, object]) -> Event:
    details = entry.get("args", {})
    return Event(
        name=str(entry["name"]),
        category=str(entry["cat"]),
        thread=(str(entry.get("pid")), str(entry.get("tid"))),
        start=_microseconds(number, entry, "ts", -MOST_US),
        duration=_microseconds(number, entry, "dur"),
        details=details if isinstance(details, dict) else {},
    )


def _microseconds(number: int, entry: Mapping[str, object], key: str, least: float = 0.0) -> float:
    value = entry.get(key)
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not least <= value <= MOST_US  # NaN is in no range
    ):
        raise ModelError(f"traceEvents[{number}]: {key}={shown(value)} must be microseconds")
    return float(value)


SECOND = 1e6
"""Microseconds."""

_COLLECTIVE = re.compile("nccl|rccl", re.IGNORECASE)


class Clock:
    """Tells the seconds of calls; `on_device` where it reads kernels, `collectives` left out.

    A kernel bears the correlation of its launch, and the launch stands within the operator that
    made it. Collectives are left out, since a plan decides about them.
    """

    def __init__(self, events: Iterable[Event]) -> None:
        """Add up the kernels of each launch."""
        kernels = [event for event in events if event.category in ON_DEVICE]
        self.on_device = bool(kernels)
        self.collectives = 0.0
        self._of_launch: dict[int, float] = {}
        for kernel in kernels:
            correlation = kernel.number("correlation")
            if _COLLECTIVE.search(kernel.name):
                self.collectives += kernel.duration / SECOND
            elif correlation is not None:
                before = self._of_launch.get(correlation, 0.0)
                self._of_launch[correlation] = before + kernel.duration

    def seconds(self, calls: Iterable[Call]) -> float:
        """Seconds of some calls together."""
        return sum(map(self._microseconds, calls)) / SECOND

    def _microseconds(self, call: Call) -> float:
        if not self.on_device:
            return call.top.duration
        launches = [event for event in call.events if event.category in LAUNCHES]
        numbers = [event.number("correlation") for event in launches]
        return sum(self._of_launch.get(number, 0.0) for number in numbers if number is not None)
