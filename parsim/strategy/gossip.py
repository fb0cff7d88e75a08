"""Peers without a server: each averages its weights with some others, at once or in pairs.

Gossip with neighbours (D-PSGD), in step:

    worker i   | F | B |  UPDATE        x_i <- mean of x_{i-1}, x_i, x_{i+1}; then x_i -= lr g
               | EXCHANGE |             with the weights of the round's start, beside compute

    step = max(F + B, 2 P / b) + mean + update

Asynchronous gossip (AD-PSGD), without a barrier: meanwhile each round's average is with one peer
that is drawn, which is busy with one average at a time.

    worker i   | F | B | UPDATE | F | B | UPDATE
               | AVERAGE |      |  AVERAGE |

Source: Lian et al., Can Decentralized Algorithms Outperform Centralized Algorithms? (NIPS 2017) and
Asynchronous Decentralized Parallel Stochastic Gradient Descent (ICML 2018); Assran et al.,
Stochastic Gradient Push (ICML 2019): the one-peer exponential graph.
"""

from __future__ import annotations

from dataclasses import replace

from parsim.strategy.program import DATA, Gate, Queue, StepProgram, Task, Waits
from parsim.strategy.workers import passes, update
from parsim.timelines.kinds import SpanKind


def gossip(workers: int, microbatches: int, topology: str, *, rounds: int = 1) -> StepProgram:
    """Write the program of workers that average with neighbours in every step."""
    ranks = tuple(range(workers))
    exchange = Task(
        name="exchange",
        kind=SpanKind.AVERAGE,
        ranks=ranks,
        stream=DATA,
        price="exchange",
        routes=("exchange",),
        waits=Waits.RANK,
        gate=Gate(of=tuple(neighbours(rank, workers, topology) for rank in ranks)),
    )
    return StepProgram(
        tasks=(exchange, *passes(ranks, microbatches, waits=Waits.ROW), update(ranks)),
        ranks=workers,
        roles=tuple(f"worker {rank}" for rank in ranks),
        rounds=rounds,
        steps=rounds,
    )


def neighbours(rank: int, workers: int, topology: str) -> tuple[int, ...]:
    """Whom a worker may average with: the next on a ring, or those 1, 2, 4 ... away."""
    if topology == "ring":
        steps = [1, workers - 1]
    else:
        steps = [2**power for power in range(workers.bit_length()) if 2**power < workers]
    return tuple(dict.fromkeys((rank - step) % workers for step in steps))


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
