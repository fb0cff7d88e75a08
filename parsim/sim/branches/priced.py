"""A model's branches on devices apart: the strategy's program with its seconds and bytes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from parsim.arrays import Array, Index
from parsim.cost.collective.collectives import collective_time, p2p_time
from parsim.cost.collective.group_bandwidth import messages_spine, one_group
from parsim.cost.collective.mesh_messages import pair_share
from parsim.cost.data.buckets import reduced_bytes
from parsim.cost.job import Job
from parsim.errors import PlanError
from parsim.model.paths import Branching
from parsim.plan import Plan, PlanTable
from parsim.plan.strategies import BranchParallel, of_kind
from parsim.sim.branches.path_prices import PathPrices
from parsim.sim.branches.placement import Placement, placed
from parsim.sim.program import PricedProgram, peak_bytes
from parsim.sim.recurrence.evaluate import Evaluation, evaluate
from parsim.sim.shared_model import added_squares, shared_update
from parsim.strategy.branch_parallel import (
    BACKWARD,
    FORWARD,
    MESSAGE,
    NORM,
    REDUCE,
    UPDATE,
    Message,
    PlacedPath,
    branch_parallel,
    messages_of,
    placed_paths,
)
from parsim.strategy.program import StepProgram

PARAMETERS = ("parameters", "gradients", "optimizer", "communication")
"""Categories that are as large as a device's parameters."""


@dataclass(frozen=True)
class Branched:
    """A plan whose workers hold a model together, and the evaluated plan of whole models.

    `node` (workers,) is each worker's node.
    """

    evaluation: Evaluation
    plan: Plan
    node: Index

    @property
    def strategy(self) -> BranchParallel:
        """The plan's strategy, with its options."""
        return of_kind(self.plan.strategy, BranchParallel)

    @property
    def branching(self) -> Branching:
        """The paths of the model.

        Raises:
            PlanError: the model has none.
        """
        branching = self.evaluation.step.job.model.branching
        if branching is None:
            raise PlanError(f"{self.evaluation.step.job.model.name} has no branches")
        return branching

    @property
    def replicas(self) -> int:
        """Groups of workers."""
        return self.plan.dp // self.strategy.devices

    @cached_property
    def prices(self) -> PathPrices:
        """Seconds and bytes of paths."""
        return PathPrices.of(self.evaluation, self.branching.paths, self.strategy.devices)

    @cached_property
    def placement(self) -> Placement:
        """The device of each path, and their order."""
        return placed(self.branching, self.prices, self.strategy)

    @cached_property
    def paths(self) -> tuple[PlacedPath, ...]:
        """The paths on their devices."""
        return placed_paths(self.branching.paths, self.placement.devices)

    @cached_property
    def messages(self) -> list[Message]:
        """What paths send to other devices."""
        return messages_of(self.paths, self.placement.order)

    def program(self, replicas: int, microbatches: int) -> StepProgram:
        """The tasks of so many groups."""
        return branch_parallel(
            self.paths,
            self.placement.order,
            devices=self.strategy.devices,
            replicas=replicas,
            microbatches=microbatches,
        )

    def on_devices(self, values: Array) -> Array:
        """Sums over the paths of each device of a group."""
        count = self.strategy.devices
        sums = np.bincount(self.placement.devices, weights=values, minlength=count)
        return np.asarray(sums, dtype=np.float64)

    @property
    def sent_bytes(self) -> Array:
        """Bytes of each message of a micro-batch's forward."""
        return np.array([self.prices.leaves[message.path] for message in self.messages])

    @property
    def returned_bytes(self) -> float:
        """Bytes of the gradients that a micro-batch's backward sends."""
        asked = [self.paths[message.path].asks for message in self.messages]
        return float((self.sent_bytes * asked).sum())

    @property
    def reduced(self) -> Array:
        """Bytes of the gradients of each device of a group."""
        width = float(reduced_bytes(PlanTable.of([self.plan])))
        return self.on_devices(self.prices.parameters) * width

    def seconds(self, passes: int) -> dict[str, Array]:
        """Seconds by the names of the program, of so many passes a step."""
        costs, system = self.evaluation.step.costs, self.evaluation.step.job.system
        scale = self.plan.num_microbatches / passes
        update = shared_update(self.evaluation, self.shares)
        beside = one_group(system, self.replicas, self.strategy.devices)
        added = added_squares(self.evaluation, self.plan.dp)
        return {
            FORWARD: self.prices.forward * scale,
            BACKWARD: self.prices.backward * scale,
            MESSAGE: np.array(list(self._message_seconds())) * scale,
            REDUCE: np.array(
                [float(collective_time(system, "all_reduce", s, beside)[0]) for s in self.reduced]
            ),
            NORM: np.atleast_1d(costs.norm[0] + added),
            UPDATE: np.tile(update, self.replicas),
        }

    def _message_seconds(self) -> Iterator[float]:
        """Seconds of each message of each group, on the links inside a node or between nodes."""
        system, devices = self.evaluation.step.job.system, self.strategy.devices
        for message, size in zip(self.messages, self.sent_bytes.tolist(), strict=True):
            for replica in range(self.replicas):
                ends = (message.source, message.target)
                source, target = (replica * devices + end for end in ends)
                crosses = bool(self.node[source] != self.node[target])
                lasted = p2p_time(
                    system,
                    size,
                    crosses=crosses,
                    sharing=1.0,
                    spine=messages_spine(system, [source], [target]),
                    share=pair_share(system, source, target),
                )
                yield float(lasted)

    @property
    def shares(self) -> Array:
        """The share of the parameters that each device of a group holds."""
        parameters = self.on_devices(self.prices.parameters)
        return np.asarray(parameters / max(parameters.sum(), 1.0))

    @property
    def logit_shares(self) -> Array:
        """The share of the losses' values that each device has."""
        values = self.on_devices(self.prices.logits)
        return np.asarray(values / max(values.sum(), 1.0))

    def activations(self, whole: float) -> Array:
        """The most bytes that each device keeps, where one device keeps `whole` of them all.

        What comes from another device is a copy of its own, from the first reader's forward until
        its backward.
        """
        scale = whole / max(self.prices.kept.sum(), 1.0)
        sizes = {f"kept {n}": np.array([size * scale]) for n, size in enumerate(self.prices.kept)}
        for message, size in zip(self.messages, self.sent_bytes, strict=True):
            first = f"kept {message.readers[0]}"
            sizes[first] = sizes[first] + size
        prices = self.seconds(1)
        of_one = prices[MESSAGE][:: self.replicas]
        seconds = {**prices, MESSAGE: of_one, UPDATE: np.zeros(1)}
        return peak_bytes(PricedProgram(program=self.program(1, 1), seconds=seconds, sizes=sizes))

    def device_bytes(self, whole: Mapping[str, float]) -> dict[str, dict[str, float]]:
        """Each device has the parameters of its branches, their states, and what they keep."""
        kept, losses = self.activations(whole["activations"]), self.logit_shares
        devices = {}
        for device, share in enumerate(self.shares.tolist()):
            there = {n: size * share if n in PARAMETERS else size for n, size in whole.items()}
            there["activations"] = float(kept[device])
            there["logits"] *= float(losses[device])
            devices[f"device {device}"] = there
        return devices

    def limits(self, step: float) -> str:
        """What holds the step back, in words."""
        devices, best = self.strategy.devices, self.placement
        work = self.on_devices(self.prices.forward + self.prices.backward)
        fullest, total = int(np.argmax(work)), float(work.sum())
        alone = 100 * float(work[fullest]) / total
        around = self._around_passes(step)
        if around:
            return around
        if float(work[fullest]) > 0.9 * best.seconds:
            return f"device {fullest}, which has {alone:.0f} % of the compute of {devices}"
        if best.bound > 0.9 * best.seconds:
            return "the longest way through the model, whose layers wait for one another"
        share = 100 * (1.0 - max(best.bound, float(work[fullest])) / best.seconds)
        return f"waiting at forks and joins and messages between devices, {share:.0f} % of a pass"

    def _around_passes(self, step: float) -> str:
        """What takes a fifth of a step beyond the passes that the placement expects, if any does.

        That is what comes behind the passes, or links slower than those it was made for.
        """
        seconds, expected = self.seconds(1), self.placement.seconds * self.plan.num_microbatches
        behind = sum(float(seconds[name].max()) for name in (REDUCE, NORM, UPDATE))
        if behind > 0.2 * step:
            share = 100 * behind / step
            return f"gradients, norm and update behind the passes, {share:.0f} % of the step"
        if expected >= 0.8 * (step - behind):
            return ""
        longer = 100 * ((step - behind) / expected - 1.0)
        by_replica = seconds[MESSAGE].reshape(-1, self.replicas).sum(axis=0)
        return (
            f"messages between the devices of replica {int(by_replica.argmax())}, whose passes "
            f"take {longer:.0f} % longer than on the links that branches were placed for"
        )

    def notes(self) -> Iterator[str]:
        """What to say of the prediction: how branches were placed."""
        yield self.placement.note(self.branching)


def placement_of(job: Job, plan: Plan) -> Placement:
    """Where the paths of a plan's model are; to run them there."""
    evaluation = evaluate(job, plan.whole_models, memory=False)
    node = np.zeros(plan.dp, dtype=np.int64)  # which nodes they are on has no say
    return Branched(evaluation, plan, node).placement
