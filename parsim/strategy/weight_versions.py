"""Pipelines without flush: each backward updates its stage at once, old weights are kept.

Three stages of PipeDream, the version behind each micro-batch:

    stage 0  | F0.0 | F1.0 | F2.0 |             B0.0 | U1 | F3.1 | B1.0 | U2 | F4.2 | B2.0 | U3 ...
    stage 1         | F0.0 | F1.0 |      B0.0 | U1 | F2.1 | B1.0 | U2 | F3.2 | B2.1 | U3 ...
    stage 2                | F0.0 | B0.0 | U1 | F1.1 | B1.1 | U2 | F2.2 | B2.2 | U3 ...

    steady state, seconds a micro-batch: max over stages of (F + B + update)
    fill: the forwards of the stages before the last; stage s holds p - s micro-batches

Which version a micro-batch uses and how many a stage keeps is the rule's (`schedule/versions.py`).
The newest weights are static; an update keeps the ones that it replaces while a micro-batch that
uses them has its backward to come. With 2BW, gradients of a batch add up in one buffer.
"""

from __future__ import annotations

from collections.abc import Iterator

from parsim.schedule import Action, Kind, build_schedule
from parsim.schedule.versions import Versions
from parsim.strategy.program import SEND, StepProgram, Task

FORWARD, BACKWARD, UPDATE, MESSAGE = "forward", "backward", "update", "message"
"""Names of prices: a row for each stage, a message for all."""

WEIGHTS, ACTIVATIONS, STATIC = "weights", "activations", "static"
"""Names of bytes: one version of a stage, one micro-batch's activations, what always stays."""


def without_flush(versions: Versions, microbatches: int) -> StepProgram:
    """Write the program of a pipeline that takes so many micro-batches one behind the other.

    Args:
        versions: the rule of weight versions, and the number of stages.
        microbatches: from the first to the last, fill and drain among them.
    """
    pp = versions.pp
    rows = [list(row) for row in build_schedule("1f1b", pp=pp, num_microbatches=microbatches).ranks]
    tasks: list[Task] = []
    for action in _in_order(rows):
        tasks += _tasks(versions, action, microbatches)
    return StepProgram(
        tasks=tuple(tasks),
        ranks=pp,
        roles=tuple(f"stage {stage}" for stage in range(pp)),
        static=STATIC,
    )


def task_name(stage: int, kind: Kind, microbatch: int) -> str:
    """The name of a forward's or a backward's task, as a schedule writes it."""
    return str(Action(stage, kind, microbatch))


def update_name(stage: int, version: int) -> str:
    """The name of the task that makes a version of a stage's weights."""
    return f"{stage}U{version}"


def _in_order(rows: list[list[Action]]) -> Iterator[Action]:
    """The actions of all stages, each behind what it needs."""
    done: set[Action] = set()
    last = len(rows) - 1
    while any(rows):
        for row in rows:
            while row:
                stage, kind, mb = row[0]
                ahead = Action(stage - 1, kind, mb) if stage else None
                back = Action(stage + 1, kind, mb) if stage < last else None
                need = ahead if kind == Kind.F else back
                if need is not None and need not in done:
                    break
                done.add(row[0])
                yield row.pop(0)


def _tasks(versions: Versions, action: Action, microbatches: int) -> Iterator[Task]:
    """A forward or a backward, its message, and the update behind it."""
    stage, kind, mb = action
    ahead = kind == Kind.F
    target, ends = (stage + 1, versions.pp) if ahead else (stage - 1, -1)
    source = stage - 1 if ahead else stage + 1
    arrives = (f"SEND {task_name(source, kind, mb)}",) if 0 <= source < versions.pp else ()
    freed = () if ahead else (task_name(stage, Kind.F, mb), *_outlived(versions, action))
    yield Task(
        name=task_name(*action),
        kind=kind.name,
        ranks=(stage,),
        price=FORWARD if ahead else BACKWARD,
        at=(stage,),
        after=arrives,
        keeps=ACTIVATIONS if ahead else "",
        frees=freed,
        stages=(stage,),
        microbatch=mb,
        on_device=True,
    )
    if target != ends:
        yield Task(
            name=f"SEND {task_name(*action)}",
            kind=f"SEND_{kind.name}",
            ranks=(stage,),
            stream=SEND,
            price=MESSAGE,
            after=(task_name(*action),),
            stages=(stage,),
            microbatch=mb,
        )
    version = None if ahead else versions.made(mb)
    if version is not None:
        yield _update(versions, stage, version, mb, microbatches)


def _update(versions: Versions, stage: int, version: int, mb: int, microbatches: int) -> Task:
    """Make a version, and keep the one before it where a backward to come uses that."""
    waiting = range(mb + 1, microbatches)
    needed = any(versions.used(stage, later) == version - 1 for later in waiting)
    return Task(
        name=update_name(stage, version),
        kind="OPTIMIZER",
        ranks=(stage,),
        price=UPDATE,
        at=(stage,),
        keeps=WEIGHTS if needed else "",
        stages=(stage,),
        microbatch=mb,
        on_device=True,
    )


def _outlived(versions: Versions, action: Action) -> tuple[str, ...]:
    """The update that replaced the weights of a backward, if no later micro-batch uses them."""
    stage, _, mb = action
    version = versions.used(stage, mb)
    replaced_at = (version + 1) * versions.batch - 1  # the micro-batch whose update replaced it
    if replaced_at >= mb or versions.used(stage, mb + 1) == version:
        return ()
    return (update_name(stage, version + 1),)
