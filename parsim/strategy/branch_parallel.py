"""Branches on devices apart: a layer's paths, or a model's towers and heads, run at the same time.

    device 0  | stem | 1x1 | 5x5 |      | join | ...     ... | join' | 5x5' | 1x1' |      | stem'
    stream           SEND x                                        SEND dy
    device 1           | pool | 3x3 | SEND y                       | 3x3' | pool' | SEND dx

    step = m max over ways through the model of (F + B + messages) + reduce + update
    step >= m max((F + B) / devices, the longest way without messages)

Each path of the model is on one device, with its parameters and their optimizer. What a path on
another device reads is sent there once; backward sends the sum of that device's gradients back. A
gather at a join is the messages of all its inputs that are elsewhere; heads with losses of their
own send their losses. The devices of a group take all their samples together, so that batch
normalisation sees them all. Replicas of the group add up the gradients of each device's parameters
with those of the same device of the others, behind the last backward; then all take the norm of the
whole gradient, and update.

Source: Krizhevsky 2014, One weird trick (arXiv:1404.5997): parts of a layer on devices apart, with
their exchange; Dean et al., Large Scale Distributed Deep Networks (NIPS 2012); Jia et al., Beyond
Data and Model Parallelism (arXiv:1807.05358) and Ding et al., IOS: Inter-Operator Scheduler (arXiv:
2011.01302) for branches that run at the same time. Leaves out: splitting the operators themselves.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from parsim.model.paths import Path
from parsim.strategy.program import StepProgram
from parsim.strategy.task import DATA, SEND, Meeting, Task, Waits
from parsim.timelines.kinds import SpanKind

FORWARD, BACKWARD, MESSAGE = "forward", "backward", "message"
"""Names of prices: a row for each path, and for each message of each group."""
REDUCE, NORM, UPDATE = "reduce", "norm", "optimizer"
"""Names of prices: a row for each device of a group, one, a row for each rank."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedPath:
    """A path of a model on a `device` of its group; `takes` are numbers of paths before it.

    `asks` says that its output's gradient is wanted.
    """

    name: str
    device: int
    takes: tuple[int, ...]
    asks: bool = True


@dataclass(frozen=True, slots=True)
class Message:
    """A path's output on its way to a device, and who reads it there in order."""

    path: int
    source: int
    target: int
    readers: tuple[int, ...]


def placed_paths(paths: Sequence[Path], devices: Sequence[int]) -> tuple[PlacedPath, ...]:
    """Put each path of a model on its device."""
    return tuple(
        PlacedPath(name=path.name, device=device, takes=path.takes, asks=path.asks)
        for path, device in zip(paths, devices, strict=True)
    )


def messages_of(paths: Sequence[PlacedPath], order: Sequence[int]) -> list[Message]:
    """What is sent, in the order in which senders have it; readers as they run."""
    turn = {number: index for index, number in enumerate(order)}
    readers: dict[tuple[int, int], list[int]] = {}
    for number in order:
        for source in paths[number].takes:
            if source >= 0 and paths[source].device != paths[number].device:
                readers.setdefault((source, paths[number].device), []).append(number)
    ends = sorted(readers, key=lambda end: (turn[end[0]], turn[readers[end][0]]))
    return [Message(path, paths[path].device, to, tuple(readers[path, to])) for path, to in ends]


def branch_parallel(
    paths: Sequence[PlacedPath],
    order: Sequence[int],
    *,
    devices: int,
    replicas: int = 1,
    microbatches: int = 1,
) -> StepProgram:
    """Write the program of a step.

    Args:
        paths: of the model, each on its device.
        order: numbers of the paths as devices run them, each behind those that it reads.
        devices: that hold a model together.
        replicas: groups of them.
        microbatches: of each group.
    """
    writer = _Writer(paths, order, devices, replicas)
    ranks = tuple(range(devices * replicas))
    tasks = [
        task
        for number in range(microbatches)
        for replica in range(replicas)
        for task in (*writer.forward(replica, number), *writer.backward(replica, number))
    ]
    if replicas > 1:
        tasks += [_reduce(ranks[device::devices], device) for device in range(devices)]
    tasks += [
        Task(
            name="norm", kind=SpanKind.GRAD_NORM, ranks=ranks, price=NORM, waits=Waits.RANK,
            meets=Meeting.STAGES,
        ),
        Task(name="update", kind=SpanKind.OPTIMIZER, ranks=ranks, price=UPDATE, on_device=True),
    ]  # fmt: skip
    return StepProgram(tasks=tuple(tasks), ranks=len(ranks), roles=_roles(devices, replicas))


class _Writer:
    """Writes the passes of a group through the paths."""

    def __init__(
        self, paths: Sequence[PlacedPath], order: Sequence[int], devices: int, replicas: int
    ) -> None:
        """Sort messages by who reads them, and by whose backward sends their gradient."""
        self.paths, self.order = paths, order
        self.devices, self.replicas = devices, replicas
        self.sent: dict[int, list[tuple[int, Message]]] = {}
        self.read: dict[int, list[Message]] = {}
        self.returned: dict[int, list[tuple[int, Message]]] = {}
        for index, message in enumerate(messages_of(paths, order)):
            self.sent.setdefault(message.path, []).append((index, message))
            for reader in message.readers:
                self.read.setdefault(reader, []).append(message)
            if paths[message.path].asks:
                self.returned.setdefault(message.readers[0], []).append((index, message))

    def forward(self, replica: int, microbatch: int) -> Iterator[Task]:
        """Each path behind what it reads, and what is sent of it."""
        for number in self.order:
            yield self._pass("F", number, replica, microbatch, self.read.get(number, ()))
            for index, message in self.sent.get(number, ()):
                yield self._message("F", index, message, replica, microbatch)

    def backward(self, replica: int, microbatch: int) -> Iterator[Task]:
        """The paths the other way round; a device's gradient leaves when it is whole."""
        for number in reversed(self.order):
            asked = [message for _, message in self.sent.get(number, ())]
            asked = asked if self.paths[number].asks else []
            yield self._pass("B", number, replica, microbatch, asked)
            for index, message in self.returned.get(number, ()):
                yield self._message("B", index, message, replica, microbatch)

    def _pass(
        self, kind: str, number: int, replica: int, microbatch: int, waited: Sequence[Message]
    ) -> Task:
        forward = self._name("F", number, replica, microbatch)
        return Task(
            name=self._name(kind, number, replica, microbatch),
            kind=kind,
            ranks=(self._rank(replica, self.paths[number].device),),
            price=FORWARD if kind == "F" else BACKWARD,
            at=(number,),
            after=tuple(self._sent(kind, message, replica, microbatch) for message in waited),
            keeps=f"kept {number}" if kind == "F" else "",
            frees=() if kind == "F" else (forward,),
            microbatch=microbatch,
            on_device=True,
        )

    def _message(
        self, kind: str, index: int, message: Message, replica: int, microbatch: int
    ) -> Task:
        ends = (message.source, message.target) if kind == "F" else (message.target, message.source)
        source, target = (self._rank(replica, device) for device in ends)
        reader = message.path if kind == "F" else message.readers[0]
        return Task(
            name=self._sent(kind, message, replica, microbatch),
            kind=SpanKind.SEND_F if kind == "F" else SpanKind.SEND_B,
            ranks=(source,),
            stream=SEND,
            price=MESSAGE,
            at=(index * self.replicas + replica,),
            after=(self._name(kind, reader, replica, microbatch),),
            routes=("copy",),
            to=(target,),
            microbatch=microbatch,
        )

    def _rank(self, replica: int, device: int) -> int:
        return replica * self.devices + device

    def _name(self, kind: str, number: int, replica: int, microbatch: int) -> str:
        where = f" of replica {replica}" if self.replicas > 1 else ""
        return f"{kind}{microbatch} {self.paths[number].name}{where}"

    def _sent(self, kind: str, message: Message, replica: int, microbatch: int) -> str:
        name = self._name(kind, message.path, replica, microbatch)
        return f"SEND {name} {'to' if kind == 'F' else 'from'} {message.target}"


def _reduce(ranks: tuple[int, ...], device: int) -> Task:
    """Add up the gradients of what one device of each group holds."""
    return Task(
        name=f"reduce {device}",
        kind=SpanKind.REDUCE_GRAD,
        ranks=ranks,
        stream=DATA,
        price=REDUCE,
        at=(device,) * len(ranks),
        waits=Waits.RANK,
        meets=Meeting.STAGES,
        routes=("all_reduce",),
    )


def _roles(devices: int, replicas: int) -> tuple[str, ...]:
    """What the rows of a picture are called."""
    return tuple(
        f"device {device}" + (f" of replica {replica}" if replicas > 1 else "")
        for replica in range(replicas)
        for device in range(devices)
    )
