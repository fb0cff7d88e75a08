"""A plan: one way to divide a training step over devices, and what follows from its fields."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from parsim.plan.fields import PlanFields
from parsim.plan.names import AUTO, TWO_WAY, WITHOUT_FLUSH
from parsim.plan.strategies import DDP, LocalSGD
from parsim.plan.words import plan_document, plan_label


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan(PlanFields):
    """One way to train: degrees of the mesh, micro-batches, schedule, sharding, recomputation.

    Its fields are those of `PlanFields`, where each has its comment.
    """

    @property
    def whole_models(self) -> Plan:
        """The plan of as many all-reducing workers as there are whole models.

        It has the samples of this one: where several workers hold a model together, one does their
        work.
        """
        sharers = self.strategy.sharers
        return replace(
            self,
            strategy=DDP,
            dp_replicate=self.dp_replicate // sharers,
            microbatch_size=self.microbatch_size * sharers,
        )

    @property
    def processes(self) -> int:
        """Processes that run it: one a rank, unless one process has all devices."""
        return 1 if self.strategy.one_process else self.world_size

    @property
    def from_file(self) -> bool:
        """Whether its actions are a schedule of the user's own, by the name of a file."""
        return self.actions is not None and self.schedule != AUTO

    @property
    def copies(self) -> int:
        """Copies of the model on the ranks of one pipeline: two where it runs both ways."""
        return 2 if self.pp > 1 and self.schedule in TWO_WAY else 1

    @property
    def runs_as_tasks(self) -> bool:
        """Whether no two replicas of its pipeline are alike, or it never flushes.

        Such a pipeline is written out task by task, not as a schedule that replicas share.
        """
        return self.stages is not None or (self.schedule in WITHOUT_FLUSH and self.actions is None)

    @property
    def runs_own_program(self) -> bool:
        """Whether its step is another than that of the all-reduce.

        Averages of weights after every step are averages of gradients, under plain SGD: that is
        DDP.
        """
        at_once = isinstance(self.strategy, LocalSGD) and self.strategy.every == 1
        return self.strategy.own_program and not at_once

    @property
    def cut(self) -> tuple[int, ...] | None:
        """Layers of each stage where the plan says them."""
        if self.stages is not None:
            return tuple(stage.layers for stage in self.stages)
        return self.stage_layers

    def to_json(self) -> dict[str, Any]:
        """Plain data, enums by name; rare fields only where they say something."""
        return plan_document(self)

    def label(self) -> str:
        """A short name for tables: `tp8 pp8 dp16 mb1 m96 1f1b full`."""
        return plan_label(self)
