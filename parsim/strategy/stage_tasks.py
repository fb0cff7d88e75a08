"""A pipeline's forwards, backwards and messages written out as tasks, one for each action.

A plan's own pipelines stay schedules, because there are so many alike. Stages that differ in their
replicas, or that update between two micro-batches, are few: each of their actions is a task, so
that times, bytes and drawing follow from the program alone.

    stage 0 replica 0   | 0F0 | SEND 0F0 | ...            micro-batch M is on replica M mod r
    stage 1                              | 1F0 | 1B0 | SEND 1B0 | ...
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from parsim.schedule import Action, Kind
from parsim.schedule.replicas import StageReplicas
from parsim.strategy.task import COMPUTE, SEND, Task

FORWARD, BACKWARD = "forward", "backward"
"""Names of prices that have a row for each stage."""

MESSAGE, MESSAGE_BACK = "message", "message_back"
"""Names of prices that have a row for each border: of activations, and of their gradients."""

ACTIVATIONS = "activations"
"""Name of bytes: what one micro-batch keeps, a row for each rank."""


@dataclass(frozen=True, slots=True)
class StageTasks:
    """Writes the tasks of actions; with `blocking` messages keep their sender's compute stream."""

    replicas: StageReplicas
    blocking: bool = False

    def of(self, action: Action, frees: Sequence[str] = ()) -> Iterator[Task]:
        """A forward or a backward and its message; `frees` are tasks whose bytes it lets go."""
        stage, kind, _ = action
        step = 1 if kind == Kind.F else -1
        yield self._computed(action, stage - step, frees)
        if stage + step in range(self.replicas.stages):
            yield self._sent(action, stage + step)

    def _computed(self, action: Action, source: int, frees: Sequence[str]) -> Task:
        """The pass itself, behind the message of the stage before it, if there is one."""
        stage, kind, mb = action
        ahead = kind == Kind.F
        inner = source in range(self.replicas.stages)
        kept = () if ahead else (task_name(stage, Kind.F, mb),)
        return Task(
            name=task_name(*action),
            kind=kind.name,
            ranks=(self.replicas.rank(stage, mb),),
            price=FORWARD if ahead else BACKWARD,
            at=(stage,),
            after=(f"SEND {task_name(source, kind, mb)}",) if inner else (),
            keeps=ACTIVATIONS if ahead else "",
            frees=(*kept, *frees),
            stages=(stage,),
            microbatch=mb,
            on_device=True,
        )

    def _sent(self, action: Action, target: int) -> Task:
        """The message of what a pass has made to the stage behind it."""
        stage, kind, mb = action
        return Task(
            name=f"SEND {task_name(*action)}",
            kind=f"SEND_{kind.name}",
            ranks=(self.replicas.rank(stage, mb),),
            stream=COMPUTE if self.blocking else SEND,
            price=MESSAGE if kind == Kind.F else MESSAGE_BACK,
            at=(min(stage, target),),
            after=(task_name(*action),),
            stages=(stage,),
            microbatch=mb,
        )


def task_name(stage: int, kind: Kind, microbatch: int) -> str:
    """The name of a forward's or a backward's task, as a schedule writes it."""
    return str(Action(stage, kind, microbatch))


def stage_roles(replicas: StageReplicas) -> tuple[str, ...]:
    """What each rank is: its stage, its number where that has several, its devices where it does.

    Devices are named where stages have different numbers of them.
    """
    uneven = len({*replicas.widths}) > 1
    return tuple(
        f"stage {stage}"
        + (f" replica {rank - replicas.ranks(stage)[0]}" if replicas.counts[stage] > 1 else "")
        + (f" tp {replicas.widths[rank]}" if uneven else "")
        for rank, stage in enumerate(replicas.stage_of)
    )
