"""Synchronous training: all replicas reduce their gradients, then all update.

    compute   ... | last B of stage 2 | last B of stage 0 |      | NORM | UPDATE |
    dp                     |-- buckets of 2 --|-- buckets of 0 --|               |-- GATHER --|
                                                           tied table |----|

    step = (max over ranks of (reduced, last action) + late + norm + update + gather) (1 + growth)

Buckets of a stage become ready at an even pace during its last backward and are reduced in that
order; without overlap they wait for the rank's last action. Then the two ranks that hold a tied
table reduce it, all ranks meet for the norm of the gradients, and each updates its parameters;
those that share them gather what the others updated.

Source: PyTorch's DistributedDataParallel (arXiv 2006.15704) and Megatron-LM (arXiv 2104.04473).
"""

from __future__ import annotations

from collections.abc import Sequence

from parsim.schedule import Schedule
from parsim.strategy.program import StepProgram
from parsim.strategy.task import COMPUTE, DATA, SEND, WAIT, Meeting, Task, Waits
from parsim.timelines.kinds import SpanKind

LATE, NORM, UPDATE, GATHER = "late", "norm", "update", "gather"
"""Names of tasks that a step has once."""


def synchronous(
    pipelines: Sequence[Schedule],
    completed: Sequence[Sequence[int]],
    *,
    beside: bool,
    blocking: bool,
    tied: bool,
    copies: bool = False,
) -> StepProgram:
    """Write the program of a synchronous step.

    Args:
        pipelines: the actions of the stages, a schedule for each class of replicas.
        completed: the stages of each rank in the order in which their gradients are complete.
        beside: whether gradients are reduced beside the last backwards, or after them.
        blocking: whether a message keeps its sender's compute stream.
        tied: whether the first and the last stage hold copies of one table.
        copies: whether ranks r and pp - 1 - r hold copies of the same stages.
    """
    first, last = pipelines[0].stage_rank[0], pipelines[0].stage_rank[-1]
    tasks = [
        _reduce(number, completed, beside) for number in range(max(map(len, completed), default=0))
    ]
    if tied and first != last:
        tasks.append(tied_task((first, last)))
    if copies:
        top = len(completed) - 1
        tasks += [_copies_task(rank, top - rank) for rank in range(len(completed) // 2)]
    tasks += update_tasks(tuple(range(len(completed))))
    return StepProgram(
        tasks=tuple(tasks),
        ranks=len(completed),
        pipelines=tuple(pipelines),
        sends=COMPUTE if blocking else SEND,
        grows="straggler",
    )


def _reduce(number: int, completed: Sequence[Sequence[int]], beside: bool) -> Task:
    """Reduce the gradient buckets of the stage that each rank completes as its number-th."""
    stages = {rank: order[number] for rank, order in enumerate(completed) if number < len(order)}
    return Task(
        name=f"{SpanKind.REDUCE_GRAD} {number}",
        kind=SpanKind.REDUCE_GRAD,
        ranks=tuple(stages),
        stream=DATA,
        price="bucket_time",
        at=tuple(stages.values()),
        pieces="buckets",
        released=beside,
        waits=Waits.ROW if beside else Waits.RANK,
        meets=Meeting.REPLICAS,
        routes=("scatter", "replicate"),
        stages=tuple(stages.values()),
    )


def tied_task(ranks: tuple[int, ...]) -> Task:
    """Reduce the gradient of a table that two stages hold, on all ranks that do."""
    return Task(
        name=SpanKind.REDUCE_TIED,
        kind=SpanKind.REDUCE_TIED,
        ranks=ranks,
        stream=DATA,
        price="tied",
        waits=Waits.RANK,
        meets=Meeting.STAGES,
    )


def _copies_task(rank: int, other: int) -> Task:
    """Add up the gradients of two ranks that hold copies of the same stages."""
    return Task(
        name=f"{SpanKind.REDUCE_TIED} {rank}",
        kind=SpanKind.REDUCE_TIED,
        ranks=(rank, other),
        stream=DATA,
        price="copies",
        at=(rank, other),
        waits=Waits.RANK,
        meets=Meeting.STAGES,
    )


def update_tasks(ranks: tuple[int, ...]) -> list[Task]:
    """Wait for all, take the norm, update, and gather updated parameters."""
    return [
        Task(name=LATE, kind=WAIT, ranks=ranks, price="late", waits=Waits.RANK,
             meets=Meeting.WORLD),
        Task(name=NORM, kind=SpanKind.GRAD_NORM, ranks=ranks, price="norm", meets=Meeting.WORLD),
        Task(name=UPDATE, kind=SpanKind.OPTIMIZER, ranks=ranks, price="optimizer",
             on_device=True),
        Task(name=GATHER, kind=SpanKind.GATHER_PARAM, ranks=ranks, stream=DATA, price="gather",
             waits=Waits.RANK, meets=Meeting.SHARERS, routes=("shard",)),
    ]  # fmt: skip
