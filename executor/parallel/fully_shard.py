"""ZeRO-2 and 3 of a stage by torch's `fully_shard`: which parameters are sharded over which ranks.

    embedding, head      one group, over the data ranks: a tied table must be in one
    each block           but for its experts, over the data ranks
    a block's experts    over the ranks that hold the same part of the same ones

The data ranks are dp_shard x cp, those with the same experts dp_shard x cp x tp / (ep x etp): where
both are the same, experts go with their block. Experts are sharded along a dim that no expert
parallelism divides, so that a rank's part of a parameter is one box (`checkpoint/pieces.py`).
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, Shard

from executor.model.factors import local_part, local_tensor
from executor.model.stage import Stage
from executor.parallel.experts import ExpertPlace
from executor.parallel.precision import gathered_dtype, wire_dtype
from parsim.plan import Plan


def shard_fully(
    stage: Stage, plan: Plan, mesh: DeviceMesh, expert_place: ExpertPlace | None
) -> None:
    """Shard a stage's parameters, in place; `expert_place` says where experts are."""
    options = {
        "mesh": _data_mesh(mesh, "dp_replicate", "dp_shard"),
        "reshard_after_forward": plan.zero_stage == 3,
        "mp_policy": _precision(plan),
    }
    # the logits are a view of what a matrix product gave; nothing here writes into them
    warnings.filterwarnings("ignore", message="FSDP2-wrapped module .* returned a view tensor")
    for block in stage.layers.values():
        if expert_place is not None:
            _shard_experts(block, plan, expert_place)
        fully_shard(block, **options)
    # the root holds embedding and head together: a tied table must be in one group
    fully_shard(stage, **options)
    if plan.zero_stage == 3 and mesh.device_type != "cpu":
        prefetch(list(stage.layers.values()))


def prefetch(blocks: Sequence[Any]) -> None:
    """Let each sharded block gather its neighbour's parameters too, before it computes.

    The next one's in forward, the one before in backward: said explicitly, a host that is behind
    its device (small blocks) does not gather late. It is what the plan's memory counts: the block
    at work and one more. Nothing is gained on a CPU, whose collectives have no stream of their own.
    """
    for before, behind in pairwise(blocks):
        before.set_modules_to_forward_prefetch([behind])
        behind.set_modules_to_backward_prefetch([before])


def _data_mesh(mesh: DeviceMesh, copies: str, shards: str) -> DeviceMesh:
    """The dims of a mesh to shard over, and those of copies where there are any, outermost."""
    return mesh[copies, shards] if mesh[copies].size() > 1 else mesh[shards]


def _precision(plan: Plan, *, cast: bool = True) -> MixedPrecisionPolicy:
    wide = gathered_dtype(plan) == torch.float32
    return MixedPrecisionPolicy(
        param_dtype=None if wide else gathered_dtype(plan),
        reduce_dtype=None if wide else wire_dtype(plan),
        cast_forward_inputs=cast,
    )


def _shard_experts(block: nn.Module, plan: Plan, expert_place: ExpertPlace) -> None:
    """Shard a block's experts, if it has any, over the ranks that hold the same ones."""
    mixture = getattr(block, "mlp", None)
    experts = getattr(mixture, "experts", None)
    if experts is None:
        return
    ranks = expert_place.mesh["shards"].size()
    # weights of copies stay in fp32: a product casts what it needs
    fully_shard(
        experts,
        mesh=_data_mesh(expert_place.mesh, "copies", "shards"),
        reshard_after_forward=plan.zero_stage == 3,
        mp_policy=_precision(plan, cast=False),
        shard_placement_fn=lambda parameter: Shard(shard_dim(parameter, ranks)),
    )
    # sums, see `take_means`: torch divides twice where a group is of one rank, gloo not at all
    experts.set_gradient_divide_factor(1.0)
    experts.set_force_sum_reduction_for_comms(True)


def take_means(stage: Stage, expert_place: ExpertPlace) -> None:
    """Divide the gradients of experts, summed over a stage's tokens, by its data ranks; in place.

    Once a step, when they are complete.
    """
    for mixture in stage.mixtures().values():
        for parameter in mixture.experts.parameters():
            if parameter.grad is not None:
                local_tensor(parameter.grad).div_(expert_place.gradients.divisor)


def shard_dim(parameter: nn.Parameter, ranks: int) -> int:
    """The dim of a parameter (experts, ..) that so many ranks share out: the first in equal parts.

    One that is not divided already; the experts themselves where there is none.
    """
    divided = set()
    if isinstance(parameter, DTensor):
        placements = enumerate(parameter.placements)
        divided = {
            placement.dim
            for dim, placement in placements
            if isinstance(placement, Shard) and parameter.device_mesh.size(dim) > 1
        }
    sizes = local_part(parameter).shape
    equal = (d for d, size in enumerate(sizes) if size % ranks == 0 and d not in divided)
    return next(equal, 0)
