"""Expert parallelism: which ranks share a layer's experts, and how tokens reach them and return.

The ranks of a pipeline stage in order of their number, as `parsim.cost.layer.mixture` has them:

    copies x shards x ep x etp        etp innermost: slices of an expert's width
                      |------|        hold a layer's experts together: one exchange
    |-------------|                   hold the same part of them: one reduction of gradients

Every rank of a stage has tokens of its own, so a gradient of an expert is the sum over all of them,
which the exchange and the reduction make together, over the number of data ranks dp x cp, as for
all other parameters. ZeRO shards over `shards`.

A copy goes to all slices of its expert in the same exchange, and what they return is added up. That
moves the bytes of an exchange over ep and a gather over etp: T k (etp - 1 / ep) rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Shard

from executor.devices.mesh import axis_group, mesh_of, ranks_by_place, subgroup
from executor.model.mixture.experts import Mixture, Share
from executor.model.mixture.grouped import Counts
from executor.model.stage import Stage, average_balance
from executor.parallel.gradients.layout import Groups
from parsim.model.transformer import TransformerSpec
from parsim.plan import Plan

AXES = ("pp", "copies", "shards", "ep", "etp")

_WIDTHS = {"up": 2, "up_bias": 2, "down": 2, "down_bias": 1}
"""The dim of each parameter (experts, ..) that is divided over etp."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertPlace:
    """Where this rank stands: its share of experts, with whom it exchanges rows, and gradients."""

    mesh: DeviceMesh
    share: Share
    exchange: dist.ProcessGroup | None
    gradients: Groups

    def groups(self) -> list[dist.ProcessGroup]:
        """All groups of this place."""
        exchanging = [] if self.exchange is None else [self.exchange]
        return [*self.mesh.get_all_groups(), *exchanging]


def expert_place(plan: Plan, spec: TransformerSpec, device_type: str) -> ExpertPlace | None:
    """The place of this rank, on all ranks at once; None where experts are like all parameters."""
    if not spec.num_experts or plan.ep * plan.etp * plan.tp * plan.cp == 1:
        return None
    mesh = mesh_of(device_type, ranks_by_share(plan), AXES)
    at = dict(zip(AXES, mesh.get_coordinate(), strict=True))
    share = Share(ep=plan.ep, index=at["ep"], etp=plan.etp, slice=at["etp"])
    gradients = Groups(
        replicate=axis_group(mesh, "copies"),
        shard=axis_group(mesh, "shards"),
        replicas=plan.dp * plan.cp,
        part=f"expert{share.index * share.etp + share.slice}",
    )
    return ExpertPlace(
        mesh=mesh, share=share, exchange=_exchange_group(plan, mesh), gradients=gradients
    )


def ranks_by_share(plan: Plan) -> Tensor:
    """The ranks as a tensor whose dims are AXES: those of a stage in order of their number."""
    stages = ranks_by_place(plan).flatten(1).sort(dim=1).values
    same = plan.stage_ranks // (plan.ep * plan.etp)
    copies = plan.dp_replicate if plan.zero_stage else same
    return stages.view(plan.pp, copies, same // copies, plan.ep, plan.etp)


def _exchange_group(plan: Plan, mesh: DeviceMesh) -> dist.ProcessGroup | None:
    """The ranks that hold a layer's experts together, ordered as their shares are."""
    if plan.ep * plan.etp == 1:
        return None
    for axis, other in (("ep", plan.etp), ("etp", plan.ep)):
        if other == 1:
            return mesh[axis].get_group()
    together = mesh.mesh.flatten(3).flatten(0, 2).tolist()
    return subgroup(together)


def apply_expert_parallel(stage: Stage, experts: ExpertPlace | None) -> None:
    """Let a stage built with its share of experts exchange rows with the other shares, in place."""
    if experts is None or experts.exchange is None:
        return
    for mixture in stage.mixtures().values():
        mixture.exchange = RankExchange(experts.exchange)
        _as_parts(mixture, experts.mesh["ep", "etp"])


def apply_balance(stage: Stage, plan: Plan) -> None:
    """Weigh the loss that balances experts as the step weighs all others, in place.

    Gradients are summed over the tensor ranks, which hold other tokens of a sequence, and averaged
    over data ranks and micro-batches.
    """
    slices = plan.tp if plan.sequence_parallel else 1
    average_balance(stage, slices * sum(plan.microbatches) / plan.dp)


def _as_parts(mixture: Mixture, mesh: DeviceMesh) -> None:
    """Say of each parameter that it is a part of a whole."""
    for name, parameter in tuple(mixture.experts.named_parameters()):
        part = DTensor.from_local(
            parameter.detach(), mesh, (Shard(0), Shard(_WIDTHS[name])), run_check=False
        )
        mixture.experts.register_parameter(name, nn.Parameter(part, parameter.requires_grad))


@dataclass(frozen=True, slots=True, kw_only=False)
class RankExchange:
    """Moves rows between the ranks of a group; backward moves their gradients back."""

    group: dist.ProcessGroup

    def counts(self, sent: Tensor) -> Tensor:
        """Each rank's row of counts, to that rank."""
        received = torch.empty_like(sent)
        dist.all_to_all_single(received, sent.contiguous(), group=self.group)
        return received

    def rows(self, x: Tensor, sent: Counts, received: Counts) -> Tensor:
        """So many rows to each rank, so many from each."""
        moved: Tensor = _Moved.apply(x, sent.listed(), received.listed(), self.group)
        return moved


class _Moved(torch.autograd.Function):  # type: ignore[misc]  # torch has no types here
    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401 - torch has no type for it
        x: Tensor,
        sent: list[int],
        received: list[int],
        group: dist.ProcessGroup,
    ) -> Tensor:
        ctx.sent, ctx.received, ctx.group = sent, received, group
        return _move(x, sent, received, group)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:  # noqa: ANN401
        return _move(grad, ctx.received, ctx.sent, ctx.group), None, None, None


def _move(x: Tensor, sent: list[int], received: list[int], group: dist.ProcessGroup) -> Tensor:
    out = x.new_empty(sum(received), *x.shape[1:])
    work = dist.all_to_all_single(out, x.contiguous(), received, sent, group=group, async_op=True)
    work.wait()
    return out
