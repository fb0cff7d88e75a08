"""Synchronous pipelines whose stages have numbers of replicas of their own.

A slow stage with two replicas, a fast one with one:

    stage 0 replica 0   | 0F0 | 0F2 |     | 0B0 |           | 0B2 |        | REDUCE |
    stage 0 replica 1   | 0F1 | 0F3 |           | 0B1 |           | 0B3 |  | REDUCE | NORM | UPDATE
    stage 1                   | 1F0 | 1B0 | 1F1 | 1B1 | 1F2 | ...                   |

    step >= m max over stages of (F_s + B_s) / r_s

Micro-batch M runs on replica M mod r of each stage. Behind its last backward a stage with several
replicas reduces its gradients, as buckets that became ready while that backward ran: the price is
what of them is left then, max(K c - L (1 - 1 / K), c) for K buckets of c seconds beside L seconds.
Then all ranks meet for the norm of the gradients and update, as in every synchronous step.

Source: the replicated stages of PipeDream (SOSP 2019) with the flush of GPipe (arXiv 1811.06965).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from parsim.schedule import Action
from parsim.schedule.replicas import StageReplicas, in_order
from parsim.strategy.program import StepProgram
from parsim.strategy.stage_tasks import StageTasks, stage_roles
from parsim.strategy.synchronous import tied_task, update_tasks
from parsim.strategy.task import DATA, Meeting, Task, Waits
from parsim.timelines.kinds import SpanKind

REDUCE, STATIC = "reduce", "static"
"""Names of seconds, a row for each stage, and of the bytes that always stay, one for each rank."""


def unequal_stages(
    replicas: StageReplicas,
    rows: Sequence[Sequence[Action]],
    *,
    blocking: bool = False,
    tied: bool = False,
) -> StepProgram:
    """Write the program of a synchronous step.

    Args:
        replicas: of each stage.
        rows: of each replica, such as `replicas.rows` of so many micro-batches.
        blocking: whether a message keeps its sender's compute stream.
        tied: whether the first and the last stage hold copies of one table.

    Raises:
        ScheduleError: ranks wait for one another for ever.
    """
    writer = StageTasks(replicas, blocking)
    tasks = [task for action in in_order(rows, replicas) for task in writer.of(action)]
    tasks += _reductions(replicas)
    if tied and replicas.stages > 1:
        ends = replicas.ranks(0) + replicas.ranks(replicas.stages - 1)
        tasks.append(tied_task(ends))
    tasks += update_tasks(tuple(range(replicas.num_ranks)))
    return StepProgram(
        tasks=tuple(tasks),
        ranks=replicas.num_ranks,
        roles=stage_roles(replicas),
        static=STATIC,
        grows="straggler",
    )


def _reductions(replicas: StageReplicas) -> Iterator[Task]:
    """Sum the gradients of each stage that has several replicas."""
    for stage, count in enumerate(replicas.counts):
        if count > 1:
            yield Task(
                name=f"{SpanKind.REDUCE_GRAD} {stage}",
                kind=SpanKind.REDUCE_GRAD,
                ranks=replicas.ranks(stage),
                stream=DATA,
                price=REDUCE,
                at=(stage,) * count,
                waits=Waits.RANK,
                meets=Meeting.STAGES,
                stages=(stage,) * count,
            )
