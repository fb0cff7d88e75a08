"""The scenario record: everything a command needs, read and checked."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from parsim.cluster.background import Background
from parsim.cluster.hardware import Cluster, System
from parsim.cluster.priced_fabrics import hashed_spines, other_fabric
from parsim.cluster.reader import load_catalog
from parsim.cost.jitter import Jitter
from parsim.cost.job import Job
from parsim.errors import InputError
from parsim.model.graph.record import Graph
from parsim.model.reader import Description
from parsim.model.transformer import TransformerSpec
from parsim.plan import Plan, PlanSpace
from parsim.plan.strategies import DDP
from parsim.results import Result
from parsim.training_run import TrainingGoal

SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Scenario(Result):
    """What is trained, where, with which software, and how (a plan, a space of plans, or both).

    `job` holds model, cluster and software; `model` is what the job's was built from. `notes` says
    in one line each what was assumed because the file does not state it. `catalog` lists the
    user's own device and system files, absolute. `jitter` is how ranks differ, where one asks,
    `background` the traffic beside the steps, `goal` how long one trains at what price.
    """

    name: str
    description: str
    path: Path | None
    job: Job
    model: Description
    plan: Plan | None
    space: PlanSpace | None
    notes: tuple[str, ...]
    catalog: tuple[Path, ...] = ()
    jitter: Jitter = field(default_factory=Jitter)
    background: Background = field(default_factory=Background)
    goal: TrainingGoal = field(default_factory=TrainingGoal)

    @property
    def global_batch_size(self) -> int:
        """Sequences of one step, which every plan of the job adds up to.

        Raises:
            InputError: the job was put in without one.
        """
        batch = self.job.global_batch_size
        if batch is None:
            raise InputError("the scenario's job states no global_batch_size; give it one")
        return batch

    @property
    def spec(self) -> TransformerSpec:
        """The sizes of the transformer.

        Raises:
            InputError: the model is a graph of operations.
        """
        if isinstance(self.model, Graph):
            raise InputError(
                f"this needs a transformer's sizes, but {self.model.name} is a graph of "
                f"operations; use a model with a family"
            )
        return self.model

    @property
    def headline(self) -> str:
        """Model, cluster and plan."""
        job = self.job
        plan = "every legal plan" if self.plan is None else self.plan.label()
        return f"{self.name}: {job.model.name} on {job.cluster.words}, {plan}"

    def to_json(self) -> dict[str, Any]:
        """The document that `parsim check --json` prints."""
        model = self.job.model
        return {
            "schema_version": SCHEMA_VERSION,
            "name": self.name,
            "model": {
                "name": model.name,
                "parameters": model.parameters,
                "layers": model.num_layers,
                "seq_len": model.tokens,
                "active_parameters": model.active_parameters,
                "trained_parameters": model.updated.parameters,
            },
            "cluster": _cluster(self.job.cluster),
            "software": self.job.software.id,
            "global_batch_size": self.global_batch_size,
            "plan": self.plan.to_json() if self.plan else None,
        }

    def records(self) -> list[dict[str, Any]]:
        """One row: what is trained, on what, and the plan's fields."""
        return [
            {
                "name": self.name,
                "model": self.job.model.name,
                "cluster": self.job.cluster.words,
                "software": self.job.software.id,
                "global_batch_size": self.global_batch_size,
                **(self.plan.to_json() if self.plan else {}),
            }
        ]

    @property
    def files(self) -> tuple[Path, ...]:
        """The files that it was read from: its own, the catalogs, the schedule."""
        itself = () if self.path is None else (self.path,)
        listed = self.plan is not None and self.plan.from_file
        return (
            *itself,
            *self.catalog,
            *((Path(self.plan.schedule),) if listed and self.plan else ()),
        )

    @property
    def needs_links(self) -> bool:
        """Whether closed forms leave out what was asked.

        Failed parts, a map of ranks, streams, a fabric of which they have no rates.
        """
        cluster = self.job.cluster
        moved = cluster.placement is not None and not cluster.groups  # there it says the kinds
        return bool(cluster.failed or moved or self.rewired or self.background.streams)

    @property
    def rewired(self) -> bool:
        """Whether the network's fabric, or a hash over its spines, is not in closed forms."""
        cluster = self.job.cluster
        return hashed_spines(cluster) or other_fabric(cluster, load_catalog(self.catalog))

    @property
    def memory_margin(self) -> float | None:
        """The share of memory that the file wants free for a plan to fit; None: it states none."""
        return None if self.space is None else self.space.memory_margin

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

        How the plan shares out nodes and micro-batches is its own, and is searched; what is
        searched all-reduces gradients.
        """
        if self.space is not None:
            return self.space
        common = replace(
            self.plan or Plan(),
            node_order=None,
            replica_microbatches=None,
            strategy=DDP,
            stages=None,
            actions=self.plan.actions if self.plan and self.plan.from_file else None,
        )
        return PlanSpace(global_batch_size=self.global_batch_size, common=common)


def _cluster(cluster: Cluster) -> dict[str, Any]:
    """One kind of node, or the groups by their names."""
    if not cluster.groups:
        return _nodes(cluster.system, cluster.num_nodes)
    groups = {group.name: _nodes(group.system, group.num_nodes) for group in cluster.groups}
    return {"nodes": cluster.num_nodes, "devices": cluster.num_devices, "groups": groups}


def _nodes(system: System, number: int) -> dict[str, Any]:
    return {
        "system": system.id,
        "nodes": number,
        "devices": number * system.devices_per_node,
        "device": system.device.id,
    }
