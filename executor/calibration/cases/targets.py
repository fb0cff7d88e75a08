"""The plans that a calibration is for: a scenario's plan, its plan space, or the usual spread."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import lcm

from executor.calibration.cases.networks import network_cases
from executor.calibration.cases.workloads import CHAIN, TimedCase, Workload, kernel_cases
from parsim.cluster.hardware import Cluster, Device, System
from parsim.cost.job import Job
from parsim.cost.software import Software
from parsim.model.graph.record import Graph
from parsim.model.spec import TransformerSpec
from parsim.plan import Plan
from parsim.planner.space import enumerate_plans
from parsim.scenario.record import Scenario

BYTES = 8.0
"""Held per parameter while whole layers are timed: fp32 value and gradient."""
MEMORY_SHARE = 0.25
"""Share of the device's memory for whole layers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A plan whose step is to be predicted, priced on the device as the catalog has it.

    `workload` is the transformer that it trains; None where the model is a network's graph.
    """

    job: Job
    plan: Plan
    workload: Workload | None

    def cases(self) -> Iterator[TimedCase]:
        """The kernels of the model's layers that can be run by themselves."""
        if self.workload is None:
            return network_cases(self.job, self.plan)
        return kernel_cases(self.workload, self.job.software)


def of_scenario(scenario: Scenario, device: Device) -> tuple[Target, ...]:
    """A scenario's plan; where it has none, its space: every (tp, micro-batch, sequence) once."""
    plans = (scenario.plan,) if scenario.plan is not None else tuple(_space(scenario))
    cluster = replace(scenario.job.cluster, system=replace(scenario.job.system, device=device))
    job = replace(scenario.job, cluster=cluster)
    if isinstance(scenario.model, Graph):
        return tuple(Target(job=job, plan=plan, workload=None) for plan in plans)
    targets = []
    for plan in plans:  # a rank has a piece of each sequence: a ring's blocks attend so far
        piece = replace(scenario.spec, seq_len=scenario.spec.seq_len // plan.cp)
        targets.append(Target(job=job, plan=plan, workload=Workload(spec=piece, plan=plan)))
    return tuple(targets)


def of_workloads(
    workloads: Sequence[Workload], system: System, device: Device, software: Software
) -> tuple[Target, ...]:
    """Each workload as a plan of its own, of one micro-batch."""
    cluster = Cluster(system=replace(system, device=device), num_nodes=1)
    return tuple(
        Target(
            job=Job(model=workload.model, cluster=cluster, software=software),
            plan=workload.plan,
            workload=workload,
        )
        for workload in workloads
    )


def whole_layers(targets: Sequence[Target], device: Device) -> tuple[Workload, ...]:
    """Workloads whose layers are timed as a whole, one for each model, split, batch and precision.

    Chains that are too large for MEMORY_SHARE of the device are as long as fits, one layer at the
    least: whether that fits shows.
    """
    workloads: dict[tuple[object, ...], Workload] = {}
    for workload in (workload for target in targets for workload in _timed(target)):
        plan = workload.plan
        degrees = plan.tp, plan.sequence_parallel, plan.cp, plan.ep, plan.etp
        size = workload.spec, degrees, plan.microbatch_size, plan.cp_comm_type, plan.precision
        if size not in workloads:
            chains = [_trimmed(workload, count) for count in range(CHAIN, 0, -1)]
            fitting = (x for x in chains if _held(x) <= MEMORY_SHARE * device.memory)
            workloads[size] = next(fitting, chains[-1])
    return tuple(workloads.values())


def _timed(target: Target) -> Iterator[Workload]:
    """A target's layers on one rank's tokens, with all experts; and as ranks share either."""
    if target.workload is None:
        return
    plan = target.workload.plan
    for number, spec in enumerate(uniform_chains(target.workload.spec)):
        alone = Workload(spec=spec, plan=replace(plan, cp=1, ep=1, etp=1), blocks_alone=number > 0)
        yield alone
        if plan.cp > 1 or (spec.num_experts and plan.ep * plan.etp > 1):
            yield replace(alone, spec=replace(spec, seq_len=plan.cp * spec.seq_len), plan=plan)


def uniform_chains(spec: TransformerSpec) -> Iterator[TransformerSpec]:
    """A model of each kind of a model's layers: in a mixed chain they are not told apart.

    Of models whose first layers, or every other one, have no experts: those with experts first.
    """
    kinds = {spec.has_experts(layer) for layer in range(spec.num_layers)}
    if len(kinds) == 1:
        yield spec
        return
    yield replace(spec, dense_layers=0, expert_every=1)
    yield replace(spec, num_experts=0, dense_layers=0, expert_every=1)


def _held(workload: Workload) -> float:
    """Bytes of a rank's parameters and gradients."""
    return BYTES * workload.model.parameters / workload.plan.tp


def _space(scenario: Scenario) -> Iterator[Plan]:
    """One plan for every tensor, context and expert split and micro-batch: their kernels differ."""
    table = enumerate_plans(scenario.job, scenario.plan_space()).table
    if table is None:
        return
    degrees = table.tp, table.cp, table.ep, table.etp, table.microbatch_size
    keys = zip(*degrees, table.sequence_parallel, strict=True)
    rows: dict[tuple[int, ...], int] = {}
    for row, key in enumerate(keys):
        rows.setdefault(tuple(map(int, key)), row)
    for row in rows.values():
        yield table.plan(row)


def _trimmed(workload: Workload, count: int) -> Workload:
    """A chain of so many layers on the fewest ranks that make up its splits."""
    spec, plan = workload.spec, workload.plan
    ranks = lcm(plan.tp * plan.cp, plan.ep * plan.etp)
    alone = Plan(
        tp=plan.tp,
        sequence_parallel=plan.sequence_parallel,
        cp=plan.cp,
        cp_comm_type=plan.cp_comm_type,
        dp_replicate=ranks // (plan.tp * plan.cp),
        ep=plan.ep,
        etp=plan.etp,
        precision=plan.precision,
        microbatch_size=plan.microbatch_size,
    )
    short = replace(spec, num_layers=min(count, spec.num_layers))
    return replace(workload, spec=short, plan=alone)
