"""Prices of one plan on each kind of node, by what a device there and its groups see."""

from __future__ import annotations

from collections.abc import Sequence

from parsim.arrays import Array
from parsim.cluster.hardware import System
from parsim.cost.job import Job, Reach
from parsim.cost.step.costs import StepCosts
from parsim.cost.step.layer_table import LayerTable
from parsim.cost.step.plan_layers import layers_of
from parsim.cost.step.step import late_by_stage, step_costs
from parsim.plan import PlanTable
from parsim.schedule import Schedule
from parsim.sim.step.replica_classes import DevicesOfRanks
from parsim.sim.step.schedule_costs import on_schedule

View = tuple[int, int, int]
"""The group that a device is of, and the groups its shards and its copies touch, as bits."""

ONLY: View = (0, 0, 0)
"""The view of nodes of one kind, whatever groups they are in."""


class Pricing:
    """Prices of one plan on each kind of node, computed when asked for and kept."""

    def __init__(
        self,
        job: Job,
        table: PlanTable,
        schedule: Schedule,
        world: int,
        layers: Sequence[LayerTable] = (),
    ) -> None:
        """Prepare to price.

        Args:
            job: model, cluster, software.
            table: the plan as a table of one row.
            schedule: its actions (with any number of micro-batches).
            world: bits of the groups that the plan uses.
            layers: layer costs on each group's nodes, where known.
        """
        self.job, self.table, self.schedule, self.world = job, table, schedule, world
        self._layers = dict(enumerate(layers))
        self._costs: dict[View, StepCosts] = {}
        self._late: dict[View, Array] = {}

    def layers(self, group: int) -> LayerTable:
        """Layer costs on the nodes of a group."""
        if group not in self._layers:
            self._layers[group] = layers_of(self.job_on(group), self.table)
        return self._layers[group]

    def costs(self, view: View) -> StepCosts:
        """The step's costs as if all devices were of the view's group."""
        view = view if self.job.mixed else ONLY
        if view not in self._costs:
            job, layers = self.viewed(view), self.layers(view[0])
            costs = step_costs(job, self.table, layers)
            self._costs[view] = on_schedule(job, self.table, layers, costs, self.schedule)
        return self._costs[view]

    def late(self, view: View) -> Array:
        """What each stage's last backward loses to the reduction beside it, (S,)."""
        view = view if self.job.mixed else ONLY
        if view not in self._late:
            job, layers, costs = self.viewed(view), self.layers(view[0]), self.costs(view)
            self._late[view] = late_by_stage(job, self.table, layers, costs)[:, 0]
        return self._late[view]

    def viewed(self, view: View) -> Job:
        """The job as if all devices were of the view's group."""
        group, shard, replicate = view
        reach = Reach(
            shard=self._systems(shard),
            replicate=self._systems(replicate),
            world=self._systems(self.world),
        )
        return self.job_on(group, reach)

    def job_on(self, group: int, reach: Reach | None = None) -> Job:
        """The job as if all nodes were of a group's kind: itself, where they are."""
        if not self.job.mixed:
            return self.job
        return self.job.on(self.job.cluster.systems[group], reach)

    def _systems(self, bits: int) -> tuple[System, ...]:
        """The kinds of node of a set of groups, each once."""
        systems = [self.job.cluster.systems[group] for group in groups_in(bits)]
        return tuple(system for i, system in enumerate(systems) if system not in systems[:i])


def groups_in(bits: int) -> list[int]:
    """The numbers of a set of groups."""
    return [number for number in range(int(bits).bit_length()) if bits >> number & 1]


def views_of(devices: DevicesOfRanks, rank: int, replica: int) -> list[View]:
    """The kinds of a rank's devices, each with what its data-parallel groups touch."""
    shard, copies = int(devices.shard[rank, replica]), int(devices.replicate[rank, replica])
    return [(group, shard, copies) for group in groups_in(devices.groups[rank, replica])]
