"""The plans that a calibration is for: a scenario's plan, its plan space, or the usual spread."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from executor.calibration.workloads import CHAIN, Workload
from parsim.cluster.hardware import Cluster, Device, System
from parsim.cost.job import Job
from parsim.cost.software import Software
from parsim.model.transformer import TransformerSpec
from parsim.plan import Plan
from parsim.scenario.record import Scenario
from parsim.search.space import enumerate_plans

OWN = 3
"""Workloads of a plan space whose whole layers are timed, at most."""
BYTES = 8.0
"""Held per parameter while whole layers are timed: fp32 value and gradient."""
MEMORY_SHARE = 0.25
"""Of the device's memory for them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A plan whose step is to be predicted, priced on the device as the catalog has it."""

    job: Job
    plan: Plan
    workload: Workload


def of_scenario(found: Scenario, device: Device) -> tuple[Target, ...]:
    """A scenario's plan; where it has none, its space: every (tp, micro-batch, sequence) once."""
    plans = (found.plan,) if found.plan is not None else tuple(_space(found))
    cluster = replace(found.job.cluster, system=replace(found.job.system, device=device))
    job = replace(found.job, cluster=cluster)
    return tuple(
        Target(job=job, plan=plan, workload=Workload(spec=_piece(found, plan), plan=plan))
        for plan in plans
    )


def _piece(found: Scenario, plan: Plan) -> TransformerSpec:
    """What a rank has of each sequence: a ring's blocks are attention of that length."""
    return replace(found.spec, seq_len=found.spec.seq_len // plan.cp)


def of_workloads(
    workloads: Sequence[Workload], system: System, device: Device, software: Software
) -> tuple[Target, ...]:
    """Each workload as a plan of its own, of one micro-batch."""
    cluster = Cluster(system=replace(system, device=device), num_nodes=1)
    return tuple(
        Target(
            job=Job(model=one.model, cluster=cluster, software=software), plan=one.plan,
            workload=one,
        )
        for one in workloads
    )  # fmt: skip


def whole_layers(targets: Sequence[Target], device: Device) -> tuple[Workload, ...]:
    """Of which plans the layers are timed as a whole: small enough, each tensor split once."""
    found: dict[tuple[int, bool], Workload] = {}
    for target in targets:
        plan, workload = target.plan, _trimmed(target.workload)
        if BYTES * workload.model.parameters / plan.tp <= MEMORY_SHARE * device.memory:
            found.setdefault((plan.tp, plan.sequence_parallel), workload)
    return tuple(found.values())[:OWN]


def _space(found: Scenario) -> Iterator[Plan]:
    """One plan for every tensor and context split and micro-batch: their kernels differ."""
    table = enumerate_plans(found.job, found.plan_space()).table
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
        tp=plan.tp, sequence_parallel=plan.sequence_parallel, precision=plan.precision,
        microbatch_size=plan.microbatch_size,
    )  # fmt: skip
    short = replace(spec, num_layers=min(CHAIN, spec.num_layers))
    return Workload(spec=short, plan=alone)
