"""Synchronous parameter server: all push gradients, servers sum and update, all pull weights.

    worker 0   | F | B | PUSH |                 | PULL |
    worker 1   | F | B |  PUSH  |               |  PULL  |
    server                      | COLLECT UPDATE |

    step = F + B + push + update + pull,   push = pull = max(P / b_w, n P / (k b_s), ...)

with n workers, k servers that hold P / k bytes each, and links of b bytes/s. Each server receives
n P / k and sends as much, 2 n P / k a step, where an all-reduce sends 2 P (n - 1) / n a worker. All
on a message's way are queues: the interfaces of the worker's node, those of the server's, its
memory, which adds the gradient to the sum. With e backup workers the first n - e gradients count. A
worker that is late computes and pushes to the end, its gradient is dropped, and it goes on with the
newest weights in the step that is open then.

Where the g workers of a node sum first (reduce-scatter) and share what they fetch (all-gather),
each sends P / g: a node with all its workers sends and receives P, not g P.

In K `pieces` a push runs beside the backward of B seconds that makes them, each on from the end of
the one before; of Q seconds of all pushes

    exposed = max(Q - B + B / K, Q / K)

Source: Li et al., Scaling Distributed Machine Learning with the Parameter Server (OSDI 2014); Chen
et al., Revisiting Distributed Synchronous SGD (arXiv 1604.00981): backup workers.
Leaves out: a next forward that begins when its first layers' weights are there, beside the pull of
the others, and servers that update and send a part while they collect the next one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from parsim.strategy.program import StepProgram
from parsim.strategy.task import DATA, WAIT, Meeting, Queue, Task, Waits
from parsim.strategy.workers import OPTIMIZER, compress, passes, pull, push
from parsim.timelines.kinds import SpanKind


class NodeExchange(NamedTuple):
    """What the workers of a node exchange with each other: its price, span and collective."""

    price: str
    kind: str
    collective: str


SUM = NodeExchange("node_sum", SpanKind.REDUCE_GRAD, "reduce_scatter")
GATHER = NodeExchange("node_gather", SpanKind.GATHER_PARAM, "all_gather")


def parameter_server(  # noqa: PLR0913 - one for each way in which servers differ
    workers: int,
    servers: int,
    microbatches: int,
    there: Sequence[Queue],
    back: Sequence[Queue],
    *,
    rounds: int = 1,
    backup_workers: int = 0,
    compresses: bool = False,
    nodes: Sequence[Sequence[int]] = (),
    pieces: int = 1,
    lumped: bool = False,
) -> StepProgram:
    """Write the program of synchronous steps with servers.

    Args:
        workers: ranks 0 to n - 1.
        servers: the ranks behind them.
        microbatches: of each worker and step.
        there: queues that a gradient passes.
        back: queues that the weights pass.
        rounds: steps; more than one where they differ.
        backup_workers: how many of the workers' gradients a step does not wait for.
        compresses: whether workers pack gradients into fewer bytes.
        nodes: the workers that sum their gradients before they send; none: each sends its own.
        pieces: of a gradient, pushed while the last backward makes the others.
        lumped: whether a pass stands for several, the last of which alone is made in pieces.
    """
    ranks, behind = tuple(range(workers)), tuple(range(workers, workers + servers))
    return StepProgram(
        tasks=(
            *_computed(ranks, microbatches, pieces, lumped=lumped),
            *([compress(ranks)] if compresses else []),
            *_pushed(ranks, there, nodes, pieces),
            _collect(ranks, quorum=workers - backup_workers if backup_workers else 0),
            _apply(behind),
            pull(ranks, back, after=("update",)),
            *_inside(nodes, "node gather", GATHER),
        ),
        ranks=workers + servers,
        roles=role_names(workers, servers),
        rounds=rounds,
        steps=rounds,
    )


def _collect(workers: tuple[int, ...], quorum: int) -> Task:
    """Wait for the gradients of all workers, or of so many."""
    return Task(
        name="collect",
        kind=WAIT,
        ranks=workers,
        stream="send",
        meets=Meeting.STAGES,
        quorum=quorum,
    )


def _apply(servers: tuple[int, ...]) -> Task:
    """Update the weights with the sum of what was collected."""
    return Task(
        name="update",
        kind=SpanKind.OPTIMIZER,
        ranks=servers,
        price=f"server_{OPTIMIZER}",
        after=("collect",),
        writes=True,
    )


def _computed(
    workers: tuple[int, ...], microbatches: int, pieces: int, *, lumped: bool
) -> Iterator[Task]:
    """All passes; of the last backward what comes before its pieces are pushed."""
    *before, last = passes(workers, microbatches)
    yield from before
    if pieces == 1:
        yield last
    elif lumped:
        yield replace(last, name="backward before", price="backward_before")


def _pushed(
    workers: tuple[int, ...],
    there: Sequence[Queue],
    nodes: Sequence[Sequence[int]],
    pieces: int,
) -> Iterator[Task]:
    """The push, or each piece of the last backward with its push beside the next piece.

    A piece is pushed when all workers have pushed the one before it, so that queues are empty.
    """
    if pieces == 1:
        yield from _inside(nodes, "node sum", SUM)
        yield push(workers, there)
        return
    for piece in range(pieces):
        yield Task(
            name=f"backward {piece}",
            kind=SpanKind.B,
            ranks=workers,
            price="backward_piece",
            on_device=True,
        )
        yield from _inside(nodes, f"node sum {piece} of node", SUM)
        before = (f"push {piece - 1}",) if piece else ()
        yield replace(push(workers, there), name=f"push {piece}", after=before)


def _inside(nodes: Sequence[Sequence[int]], name: str, exchange: NodeExchange) -> Iterator[Task]:
    """A collective of the workers of each node."""
    for number, node in enumerate(nodes):
        if len(node) > 1:
            yield Task(
                name=f"{name} {number}",
                kind=exchange.kind,
                ranks=tuple(node),
                stream=DATA,
                price=exchange.price,
                waits=Waits.RANK,
                meets=Meeting.STAGES,
                routes=(exchange.collective,),
            )


def role_names(workers: int, servers: int) -> tuple[str, ...]:
    """What the rows of a picture are called."""
    return (
        *(f"worker {number}" for number in range(workers)),
        *map(role_of_server, range(servers)),
    )


def role_of_server(number: int) -> str:
    """What a server's row is called."""
    return f"server {number}"
