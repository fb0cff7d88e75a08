"""Asynchronous parameter server: every gradient is applied alone, as it comes; nobody waits.

    worker 0   | PULL | F | B | PUSH | UPDATE | PULL | F | B | PUSH | UPDATE | ...
    worker 1   | PULL |   F   |   B   | PUSH | UPDATE | PULL |   F   | ...

    X = N / (Z + R),  R = S (1 + Q),  Q = X R       (closed queue: exact for exponential S)

updates a second of N workers that compute and send for Z seconds and are served for S on the
busiest queue. X never exceeds 1 / S: from N = 1 + Z / S workers on a server is saturated. A
gradient is old by the updates between its worker's pull and its own: N - 1 in the mean. With a
bound q on the staleness, nobody is more than q + 1 rounds ahead of the slowest.

Source: Dean et al., Large Scale Distributed Deep Networks (NIPS 2012); Recht et al., Hogwild! (NIPS
2011); Ho et al., More Effective Distributed ML via a Stale Synchronous Parallel Parameter Server
(NIPS 2013); mean value analysis: Reiser and Lavenberg (JACM 27(2), 1980).
"""

from __future__ import annotations

from collections.abc import Sequence

from parsim.strategy.program import StepProgram
from parsim.strategy.task import Gate, Queue, Task, Waits
from parsim.strategy.workers import compress, passes, pull, push
from parsim.timelines.kinds import SpanKind, Stream


def asynchronous_server(
    workers: int,
    microbatches: int,
    there: Sequence[Queue],
    back: Sequence[Queue],
    applied: Sequence[Queue],
    *,
    rounds: int,
    staleness: int | None = None,
    compresses: bool = False,
) -> StepProgram:
    """Write the program of workers that push to and pull from servers without a barrier.

    Args:
        workers: ranks 0 to n - 1.
        microbatches: of each worker and round.
        there: queues that a gradient passes.
        back: queues that the weights pass.
        applied: queues that apply a gradient: memory of the servers.
        rounds: updates of each worker.
        staleness: how many rounds a worker may be ahead of the slowest, less one; None: any.
        compresses: whether workers pack gradients into fewer bytes.
    """
    ranks = tuple(range(workers))
    gate = None if staleness is None else Gate(lag=staleness)
    return StepProgram(
        tasks=(
            pull(ranks, back, gate=gate),
            *passes(ranks, microbatches),
            *([compress(ranks)] if compresses else []),
            push(ranks, there),
            _apply(ranks, applied),
        ),
        ranks=workers,
        roles=tuple(f"worker {number}" for number in ranks),
        rounds=rounds,
        steps=rounds,
    )


def _apply(workers: tuple[int, ...], memory: Sequence[Queue]) -> Task:
    """Each worker's gradient applied by the servers, which is drawn as the worker's update."""
    return Task(
        name="update",
        kind=SpanKind.OPTIMIZER,
        ranks=workers,
        stream=Stream.SEND,
        waits=Waits.RANK,
        queues=tuple(memory),
        writes=True,
    )
