"""Tasks that workers with whole models have in common: compute, and what they send to servers."""

from __future__ import annotations

from collections.abc import Sequence

from parsim.strategy.task import COMPUTE, Gate, Queue, Rounds, Task, Waits
from parsim.timelines.kinds import SpanKind, Stream

FORWARD, BACKWARD, OPTIMIZER = "forward", "backward", "optimizer"
"""Names of prices: a micro-batch's forward and backward, and the update, seconds by worker."""
RECEIVE, TRANSMIT = Stream.RECV, Stream.SEND


def passes(workers: Sequence[int], microbatches: int, *, waits: Waits = Waits.RANK) -> list[Task]:
    """Forward and backward of each micro-batch on every worker; the first one `waits`."""
    return [
        Task(
            name=f"{kind} {number}",
            kind=kind,
            ranks=tuple(workers),
            price=price,
            waits=waits if kind == SpanKind.F and number == 0 else Waits.ROW,
            on_device=True,
            microbatch=number,
        )
        for number in range(microbatches)
        for kind, price in ((SpanKind.F, FORWARD), (SpanKind.B, BACKWARD))
    ]


def update(workers: Sequence[int], when: Rounds | None = None) -> Task:
    """The optimizer's step of every worker, when all its streams are done."""
    return Task(
        name="update",
        kind=SpanKind.OPTIMIZER,
        ranks=tuple(workers),
        price=OPTIMIZER,
        stream=COMPUTE,
        waits=Waits.RANK,
        on_device=True,
        when=when or Rounds(),
    )


def compress(workers: Sequence[int]) -> Task:
    """Pack the gradient of all passes into fewer bytes."""
    return Task(
        name="compress",
        kind=SpanKind.COMPRESS,
        ranks=tuple(workers),
        price="compress",
        on_device=True,
    )


def push(workers: Sequence[int], queues: Sequence[Queue]) -> Task:
    """Send a gradient to the servers; it takes `push_latency` where nobody else sends."""
    return Task(
        name="push",
        kind=SpanKind.PUSH,
        ranks=tuple(workers),
        stream=TRANSMIT,
        price="push_latency",
        routes=("push",),
        waits=Waits.RANK,
        queues=tuple(queues),
    )


def pull(
    workers: Sequence[int],
    queues: Sequence[Queue],
    *,
    after: tuple[str, ...] = (),
    gate: Gate | None = None,
) -> Task:
    """Copy the weights from the servers; it takes `pull_latency` where nobody else does."""
    return Task(
        name="pull",
        kind=SpanKind.PULL,
        ranks=tuple(workers),
        stream=RECEIVE,
        price="pull_latency",
        routes=("pull",),
        waits=Waits.RANK,
        after=after,
        gate=gate,
        queues=tuple(queues),
        reads=True,
    )
