"""The scenario record: everything a command needs, read and checked."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

from parsim.cluster.background import Background
from parsim.cost.jitter import Jitter
from parsim.cost.job import Job
from parsim.errors import InputError
from parsim.model.transformer import TransformerSpec
from parsim.plan import Plan, PlanSpace


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """What is trained, where, with which software, and how (a plan, a space of plans, or both).

    `job` holds model, cluster and software; `spec` is what the model was built from. `notes` says
    in one line each what was assumed because the file does not state it. `catalog` lists the
    user's own device and system files, absolute. `jitter` is how ranks differ, where one asks,
    `background` the traffic beside the steps.
    """

    name: str
    description: str
    path: Path | None
    job: Job
    spec: TransformerSpec
    plan: Plan | None
    space: PlanSpace | None
    global_batch_size: int
    notes: tuple[str, ...]
    catalog: tuple[Path, ...] = ()
    jitter: Jitter = field(default_factory=Jitter)
    background: Background = field(default_factory=Background)

    @property
    def needs_links(self) -> bool:
        """Whether closed forms leave out what was asked: failed parts, a map of ranks, streams."""
        cluster = self.job.cluster
        moved = cluster.placement is not None and not cluster.groups  # there it says the kinds
        return bool(cluster.failed or moved or self.background.streams)

    def fixed_plan(self) -> Plan:
        """The plan of the file.

        Raises:
            InputError: the file has no plan block.
        """
        if self.plan is None:
            raise InputError(
                f"{self.path}: no plan block; add one, or take the best of "
                f"`parsim search {self.path} --save best.yaml`"
            )
        return self.plan

    def plan_space(self) -> PlanSpace:
        """The space of the file, or every legal plan with the switches of its plan.

        How the plan shares out nodes and micro-batches is its own, and is searched.
        """
        if self.space is not None:
            return self.space
        common = replace(self.plan or Plan(), node_order=None, replica_microbatches=None)
        return PlanSpace(global_batch_size=self.global_batch_size, common=common)
