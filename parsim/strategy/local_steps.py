"""Local steps: workers update weights of their own, and average them every n-th step.

    worker 0   | F | B | UPDATE | F | B | UPDATE | ... | F | B | UPDATE |
    worker 1   | F | B | UPDATE |  F  | B | UPDATE | ... | F | B | UPDATE |
                                                                        | AVERAGE | OUTER |

    step = F + B + update + (all_reduce(P) + division) / n

With w workers each sends 2 P (w - 1) / (w n) bytes a step.

Averages inside the node may be more frequent than those of all nodes (hierarchical), and training
may begin with steps whose gradients are averaged (post-local). DiLoCo takes the average of the
workers' changes as the gradient of an outer optimizer (SGD with Nesterov momentum).

n = 1 under plain SGD is DDP, up to rounding, and is run as DDP; under Adam averaged weights differ
from weights of averaged gradients.

Source: Stich, Local SGD Converges Fast and Communicates Little (ICLR 2019); Lin et al., Don't Use
Large Mini-Batches, Use Local SGD (ICLR 2020): post-local and hierarchical; Douillard et al.,
DiLoCo (arXiv 2311.08105).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from parsim.strategy.program import StepProgram
from parsim.strategy.task import DATA, Meeting, Rounds, Task, Waits
from parsim.strategy.workers import passes, update
from parsim.timelines.kinds import SpanKind


def local_steps(
    nodes: Sequence[Sequence[int]],
    microbatches: int,
    *,
    every: int,
    node_every: int = 0,
    after: int = 0,
    rounds: int = 0,
    outer: bool = False,
) -> StepProgram:
    """Write the program of workers that average now and then.

    Args:
        nodes: the workers of each node.
        microbatches: of each worker and step.
        every: steps between averages of all.
        node_every: steps between averages of a node's workers; 0: none.
        after: steps at the start whose gradients all average.
        rounds: steps; 0: until the first average of all.
        outer: whether an outer optimizer takes the averaged change.
    """
    workers = tuple(worker for node in nodes for worker in node)
    rounds = rounds or after + every
    late = Rounds(every=every, since=after)
    tasks = [*passes(workers, microbatches)]
    if after:
        tasks.append(_average("reduce", SpanKind.REDUCE_GRAD, workers, Rounds(until=after)))
    tasks.append(update(workers))
    if node_every:
        tasks += _in_nodes(nodes, Rounds(every=node_every, since=after))
    tasks.append(_average("average", SpanKind.AVERAGE, workers, late))
    if outer:
        tasks.append(_outer_update(workers, late))
    return StepProgram(
        tasks=tuple(tasks),
        ranks=len(workers),
        roles=tuple(f"worker {rank}" for rank in workers),
        rounds=rounds,
        steps=rounds,
    )


def _outer_update(workers: tuple[int, ...], when: Rounds) -> Task:
    """The step of the outer optimizer, for which the averaged change is the gradient."""
    return Task(
        name="outer update",
        kind=SpanKind.OPTIMIZER,
        ranks=workers,
        price="outer",
        waits=Waits.RANK,
        on_device=True,
        when=when,
    )


def _in_nodes(nodes: Sequence[Sequence[int]], when: Rounds) -> Iterator[Task]:
    """Averages of each node's workers."""
    for number, node in enumerate(nodes):
        if len(node) > 1:
            yield _average(f"node average {number}", SpanKind.AVERAGE, tuple(node), when)


def _average(name: str, kind: str, workers: tuple[int, ...], when: Rounds) -> Task:
    """An all-reduce of all parameters, for which all of its workers meet."""
    price = name.rstrip("0123456789 ").replace(" ", "_")
    return Task(
        name=name,
        kind=kind,
        ranks=workers,
        stream=DATA,
        price=price,
        waits=Waits.RANK,
        meets=Meeting.STAGES,
        routes=("all_reduce",),
        when=when,
    )
