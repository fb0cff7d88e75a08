"""The plans that a calibration is for: a scenario's plan, its plan space, or the usual spread."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from executor.calibration.cases.workloads import CHAIN, Workload
from parsim.cluster.hardware import Cluster, Device, System
from parsim.cost.job import Job
from parsim.cost.software import Software
from parsim.plan import Plan
from parsim.planner.space import enumerate_plans
from parsim.scenario.record import Scenario

MOST_WORKLOADS = 3
"""Workloads of a plan space whose whole layers are timed, at most."""
BYTES = 8.0
"""Held per parameter while whole layers are timed: fp32 value and gradient."""
MEMORY_SHARE = 0.25
"""Share of the device's memory for whole layers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A plan whose step is to be predicted, priced on the device as the catalog has it."""

    job: Job
    plan: Plan
    workload: Workload


def of_scenario(scenario: Scenario, device: Device) -> tuple[Target, ...]:
    """A scenario's plan; where it has none, its space: every (tp, micro-batch, sequence) once."""
    plans = (scenario.plan,) if scenario.plan is not None else tuple(_space(scenario))
    cluster = replace(scenario.job.cluster, system=replace(scenario.job.system, device=device))
    job = replace(scenario.job, cluster=cluster)
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
    """Workloads whose layers are timed as a whole: small enough, each tensor split once."""
    layers_of_split: dict[tuple[int, bool], Workload] = {}
    for target in targets:
        plan, workload = target.plan, _trimmed(target.workload)
        if BYTES * workload.model.parameters / plan.tp <= MEMORY_SHARE * device.memory:
            layers_of_split.setdefault((plan.tp, plan.sequence_parallel), workload)
    return tuple(layers_of_split.values())[:MOST_WORKLOADS]


def _space(scenario: Scenario) -> Iterator[Plan]:
    """One plan for every tensor and context split and micro-batch: their kernels differ."""
    table = enumerate_plans(scenario.job, scenario.plan_space()).table
    if table is None:
        return
    keys = zip(table.tp, table.microbatch_size, table.sequence_parallel, table.cp, strict=True)
    rows: dict[tuple[int, int, bool, int], int] = {}
    for row, (tp, size, sequence, cp) in enumerate(keys):
        rows.setdefault((int(tp), int(size), bool(sequence), int(cp)), row)
    for row in rows.values():
        yield table.plan(row)


def _trimmed(workload: Workload) -> Workload:
    """A chain of layers under the tensor split and micro-batch alone."""
    spec, plan = workload.spec, workload.plan
    alone = Plan(
        tp=plan.tp,
        sequence_parallel=plan.sequence_parallel,
        precision=plan.precision,
        microbatch_size=plan.microbatch_size,
    )
    short = replace(spec, num_layers=min(CHAIN, spec.num_layers))
    return Workload(spec=short, plan=alone)
