"""The kernels and collectives of experts, in the order in which a layer adds them up."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from parsim.cluster.hardware import Device
from parsim.cost.data.buckets import added_bytes
from parsim.cost.job import Job
from parsim.cost.kernel.kernels import ACCUMULATE, memory_time
from parsim.cost.layer.mixture.exchanges import expert_exchanges
from parsim.cost.layer.mixture.experts import ExpertCoster
from parsim.cost.layer.operator_parts import Exchange, Kernels, PassPart
from parsim.model.operators import Experts
from parsim.plan import PlanTable
from parsim.plan.precision import Quantization


def expert_kernels(
    job: Job, table: PlanTable, op: Experts, how: Quantization | None, crowded: Device
) -> Iterator[Kernels | Exchange]:
    """Routing and products of experts; tokens go there and back in either direction.

    `crowded` is the device as products see it beside a collective.
    """
    experts = ExpertCoster.of(job, table, op, how)
    yield experts.forward(crowded)
    yield experts.backward()
    if op.trained and not job.software.fused_gradient_accumulation:
        moved = added_bytes(job, table) * (op.expert_parameters / table.expert_ranks)
        added = memory_time(job.device, moved, kind=ACCUMULATE)
        yield (replace(experts.kernel(PassPart.BACKWARD, added, 2), weights=True),)
    for moving in expert_exchanges(experts):
        yield Exchange(part=PassPart.FORWARD, exposed=moving, routed=True)
        yield Exchange(part=PassPart.BACKWARD, exposed=moving)


def expert_activation(job: Job, table: PlanTable, op: Experts, how: Quantization | None) -> Kernels:
    """What is repeated where only the activation between the experts' products is."""
    experts = ExpertCoster.of(job, table, op, how)
    return (experts.kernel(PassPart.FORWARD, experts.activation(3.0), 1),)
