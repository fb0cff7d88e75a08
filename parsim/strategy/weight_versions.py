"""Pipelines without flush: each backward updates its stage at once, old weights are kept.

Three stages of PipeDream, the version behind each micro-batch:

    stage 0  | F0.0 | F1.0 | F2.0 |             B0.0 | U1 | F3.1 | B1.0 | U2 | F4.2 | B2.0 | U3 ...
    stage 1         | F0.0 | F1.0 |      B0.0 | U1 | F2.1 | B1.0 | U2 | F3.2 | B2.1 | U3 ...
    stage 2                | F0.0 | B0.0 | U1 | F1.1 | B1.1 | U2 | F2.2 | B2.2 | U3 ...

    steady state, seconds a micro-batch: max over stages of (F + B + update)
    fill: the forwards of the stages before the last; stage s holds p - s micro-batches

Which version a micro-batch uses and how many a stage keeps is the rule's (`schedule/versions.py`).
The newest weights are static; an update keeps the ones that it replaces while a micro-batch that
uses them has its backward to come. With 2BW, gradients of a batch add up in one buffer; otherwise
they live from a backward's end to the end of its update. Replicas of a stage reduce the gradients
of the micro-batches that they take at once, before each update. Where they do not wait for that
sum, the update stands behind their next backward:

    replica 0  | F2 | B0 | F4 | B2 | U1 | F6 | B4 | U2 ...
    sum             | ~~~~~~~~ U1  | ~~~~~~~~ U2
"""

from __future__ import annotations

from collections.abc import Iterator

from parsim.schedule import Action, Kind
from parsim.schedule.replicas import in_order
from parsim.schedule.versions import Versions
from parsim.strategy.program import StepProgram
from parsim.strategy.stage_tasks import StageTasks, stage_roles, task_name
from parsim.strategy.task import DATA, WAIT, Meeting, Task
from parsim.timelines.kinds import SpanKind

UPDATE, REDUCE = "update", "reduce"
"""Names of prices: a row for each stage."""

WEIGHTS, GRADIENTS = "weights", "gradients"
"""Names of bytes, a row for each rank: one version of its stage, a gradient of it."""
STATIC, STATIC_ALONE = "static", "static_alone"
"""Names of what always stays, with the buffer in which gradients add up, and without."""


def without_flush(versions: Versions, microbatches: int) -> StepProgram:
    """Write the program of a pipeline that takes so many micro-batches one behind the other.

    Args:
        versions: the rule of weight versions, the stages and their replicas.
        microbatches: from the first to the last, fill and drain among them.

    Raises:
        ScheduleError: the micro-batches cannot be shared out to a stage's replicas evenly.
    """
    replicas = versions.replicas
    rows = [
        tuple(_with_reductions(row, replicas.counts))
        for row in replicas.rows(microbatches, versions.warmups)
    ]
    writer = StageTasks(replicas)
    return StepProgram(
        tasks=tuple(
            task
            for action in in_order(rows, replicas)
            for task in _tasks(versions, writer, action, microbatches)
        ),
        ranks=replicas.num_ranks,
        roles=stage_roles(replicas),
        static=STATIC if versions.batch > 1 else STATIC_ALONE,
    )


def _tasks(
    versions: Versions, writer: StageTasks, action: Action, microbatches: int
) -> Iterator[Task]:
    """An action, with what a stage does behind its backward: keep a gradient, make a version."""
    stage, kind, mb = action
    count = versions.replicas.counts[stage]
    if kind == Kind.REDUCE_GRAD:
        yield from _shared(versions, action, microbatches)
        return
    yield from writer.of(action, _outlived(versions, action) if kind == Kind.B else ())
    if kind != Kind.B:
        return
    if versions.batch == 1 and not versions.lateness(stage):
        yield _gradient(versions, stage, mb)
    if count == 1 and versions.made(stage, mb) is not None:
        yield _update(versions, stage, mb, microbatches)


def _shared(versions: Versions, action: Action, microbatches: int) -> Iterator[Task]:
    """The sum of a round of a stage's replicas, the updates behind it, and gradients that wait."""
    stage, _, number = action
    count, late = versions.replicas.counts[stage], versions.lateness(stage)
    behind = (number + 1) * count
    waits = late * count if behind < microbatches else 0
    yield _reduce(versions, action)
    for mb in range(max(0, number - late) * count, behind - waits):
        yield _update(versions, stage, mb, microbatches)
    for mb in range(behind - count, behind if waits else 0):
        yield _gradient(versions, stage, mb)


def update_name(stage: int, version: int, replica: int = 0) -> str:
    """The name of the task that makes a version of a stage's weights on a replica."""
    return f"{stage}U{version}" + (f" replica {replica}" if replica else "")


def _with_reductions(row: tuple[Action, ...], counts: tuple[int, ...]) -> Iterator[Action]:
    """A rank's actions, and behind each backward its reduction where the stage has replicas."""
    for action in row:
        yield action
        count = counts[action.stage]
        if action.kind == Kind.B and count > 1:
            yield Action(action.stage, Kind.REDUCE_GRAD, action.microbatch // count)


def _reduce(versions: Versions, action: Action) -> Task:
    """Sum the gradients of a stage's replicas, for which all of them meet."""
    stage, _, number = action
    count = versions.replicas.counts[stage]
    return Task(
        name=f"{stage}{SpanKind.REDUCE_GRAD}{number}",
        kind=SpanKind.REDUCE_GRAD,
        ranks=versions.replicas.ranks(stage),
        stream=DATA,
        price=REDUCE,
        at=(stage,),
        after=tuple(task_name(stage, Kind.B, number * count + copy) for copy in range(count)),
        meets=Meeting.STAGES,
        stages=(stage,) * count,
    )


def _gradient(versions: Versions, stage: int, mb: int) -> Task:
    """Keep the gradient of a backward until its update: takes no time."""
    return Task(
        name=f"{stage}G{mb}",
        kind=WAIT,
        ranks=(versions.replicas.rank(stage, mb),),
        after=(task_name(stage, Kind.B, mb),),
        keeps=GRADIENTS,
        stages=(stage,),
        microbatch=mb,
    )


def _update(versions: Versions, stage: int, mb: int, microbatches: int) -> Task:
    """Make a version, and keep the one before it where a backward to come uses that."""
    count, version = versions.replicas.counts[stage], versions.made(stage, mb)
    if version is None:
        raise ValueError(f"no version is made behind micro-batch {mb}")
    last = microbatches - count + mb % count  # versions in use grow one by one until it
    late = versions.lateness(stage)
    behind = mb + (1 + late) * count  # the first backward behind the update
    at_once = late > 0 and mb + count > last  # no backward comes for which its gradient waits
    needed = behind <= last and (
        versions.used(stage, behind) <= version - 1 <= versions.used(stage, last)
    )
    return Task(
        name=update_name(stage, version, mb % count),
        kind="OPTIMIZER",
        ranks=(versions.replicas.rank(stage, mb),),
        price=UPDATE,
        at=(stage,),
        after=(f"{stage}{SpanKind.REDUCE_GRAD}{mb // count}",) if count > 1 else (),
        keeps=WEIGHTS if needed else "",
        frees=(f"{stage}G{mb}",) if versions.batch == 1 and not at_once else (),
        stages=(stage,),
        microbatch=mb,
        on_device=True,
    )


def _outlived(versions: Versions, action: Action) -> tuple[str, ...]:
    """The update that replaced the weights of a backward, if no later micro-batch uses them."""
    stage, _, mb = action
    count, version = versions.replicas.counts[stage], versions.used(stage, mb)
    made_by = (version + 1) * versions.batch - 1  # which of the replica's micro-batches
    replaced_at = made_by + versions.lateness(stage)
    if replaced_at >= mb // count or versions.used(stage, mb + count) == version:
        return ()
    return (update_name(stage, version + 1, mb % count),)
