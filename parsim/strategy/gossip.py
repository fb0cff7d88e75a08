"""Peers without a server: each averages its weights with some others, at once or in pairs.

Gossip with neighbours on a ring (D-PSGD), in step:

    worker i   | F | B |  UPDATE        x_i <- mean of x_{i-1}, x_i, x_{i+1}; then x_i -= lr g
               | EXCHANGE |             with the weights of the round's start, beside compute

    step = max(F + B, 2 P / b) + mean + update

On the one-peer exponential graph a worker sends to a single peer a step, 2^(k mod log2 n) away in
step k, and receives from the one as far behind it:

    x_i <- (x_i + x_{i - 2^k}) / 2                      rows and columns of the mixing sum to 1
    step = max(F + B, P / b) + mean + update

Asynchronous gossip (AD-PSGD), without a barrier: meanwhile each round's average is with one peer
that is drawn, which is busy with one average at a time.

    worker i   | F | B | UPDATE | F | B | UPDATE
               | AVERAGE |      |  AVERAGE |

Source: Lian et al., Can Decentralized Algorithms Outperform Centralized Algorithms? (NIPS 2017) and
Asynchronous Decentralized Parallel Stochastic Gradient Descent (ICML 2018); Assran et al.,
Stochastic Gradient Push (ICML 2019, arXiv:1811.10792): the one-peer exponential graph.
"""

from __future__ import annotations

from dataclasses import replace

from parsim.strategy.program import StepProgram
from parsim.strategy.task import DATA, Gate, Queue, Rounds, Task, Waits
from parsim.strategy.workers import passes, update
from parsim.timelines.kinds import SpanKind


def gossip(workers: int, microbatches: int, topology: str, *, rounds: int = 1) -> StepProgram:
    """Write the program of workers that average with neighbours in every step.

    Steps whose peers differ have an exchange each, done in every so-many-th round.
    """
    ranks, kinds = tuple(range(workers)), exchanges(workers, topology)
    each = tuple(
        Task(
            name=name,
            kind=SpanKind.AVERAGE,
            ranks=ranks,
            stream=DATA,
            price=name,
            routes=("exchange",),
            waits=Waits.RANK,
            gate=Gate(of=tuple(neighbours(rank, workers, topology, number) for rank in ranks)),
            when=Rounds(every=len(kinds), since=number + 1 - len(kinds)),
        )
        for number, name in enumerate(kinds)
    )
    return StepProgram(
        tasks=(*each, *passes(ranks, microbatches, waits=Waits.ROW), update(ranks)),
        ranks=workers,
        roles=tuple(f"worker {rank}" for rank in ranks),
        rounds=rounds,
        steps=rounds,
    )


def exchanges(workers: int, topology: str) -> tuple[str, ...]:
    """Names of the exchanges of a cycle of steps: one on a ring, else one for each distance."""
    if topology == "ring":
        return ("exchange",)
    return tuple(f"exchange {2**power}" for power in range(max((workers - 1).bit_length(), 1)))


def neighbours(rank: int, workers: int, topology: str, number: int) -> tuple[int, ...]:
    """Whose weights a worker takes in a step: both next ones on a ring, or its one peer's."""
    if topology == "ring":
        return tuple(dict.fromkeys((rank - step) % workers for step in (1, workers - 1)))
    return ((rank - 2 ** (number % len(exchanges(workers, topology)))) % workers,)


def asynchronous_gossip(workers: int, microbatches: int, *, rounds: int) -> StepProgram:
    """Write the program of workers that average in pairs, whenever they are ready."""
    ranks = tuple(range(workers))
    average = Task(
        name="average",
        kind=SpanKind.AVERAGE,
        ranks=ranks,
        stream=DATA,
        waits=Waits.RANK,
        reads=True,
        routes=("pair",),
        queues=(
            Queue(rows=tuple(f"worker {rank}" for rank in ranks), price="average", drawn=True),
        ),
    )
    return StepProgram(
        tasks=(
            average,
            *passes(ranks, microbatches, waits=Waits.ROW),
            replace(update(ranks), writes=True),
        ),
        ranks=workers,
        roles=tuple(f"worker {rank}" for rank in ranks),
        rounds=rounds,
        steps=rounds,
    )
