"""SGD and AdamW over what a rank updates, and the norm of all gradients.

Parameters in fp32 that this rank updates alone or as shards go to torch's optimizer as they are.
bf16 parameters, and the shares of ZeRO-1, are updated in fp32 copies ("masters") and written back;
with ZeRO-1 the ranks then gather each other's shares. Both optimizers treat each value apart from
all others, so cutting a bucket anywhere changes no result.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from executor.parallel.buckets import (
    ALL_GATHER,
    Bucket,
    GradientBuckets,
    local_tensor,
    trainable,
)
from executor.parallel.data import Replica, like_parameter
from parsim.errors import InputError
from parsim.plan import Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerConfig:
    """Which optimizer and its settings; the defaults are those of GPT-3's training."""

    name: Literal["adamw", "sgd"] = "adamw"
    learning_rate: float = 6e-4
    weight_decay: float = 0.1
    betas: tuple[float, float] = (0.9, 0.95)
    eps: float = 1e-8


class StageOptimizer:
    """Updates the stages of a rank; call `step` after `Replica.finish`.

    `state_dict` is what this rank holds: it fits the same plan on the same ranks only.
    """

    def __init__(self, replicas: Sequence[Replica], config: OptimizerConfig) -> None:
        self.replicas = tuple(replicas)
        self._masters = [
            Masters(bucket, replica.buckets)
            for replica in replicas
            if replica.buckets is not None and needs_masters(replica)
            for bucket in replica.buckets.buckets
        ]
        self.inner = _build([*self._masters_group(), *_direct_groups(replicas)], config)

    def _masters_group(self) -> list[list[nn.Parameter]]:
        masters = [master.values for master in self._masters]
        return [masters] if masters else []

    def step(self) -> None:
        """Update the parameters from the gradients."""
        for replica in self.replicas:
            if replica.buckets is not None and not needs_masters(replica):
                _hand_over(replica, replica.buckets)
        for master in self._masters:
            master.load_gradient()
        self.inner.step()
        for master in self._masters:
            master.write_back()

    def zero_grad(self) -> None:
        """Forget all gradients."""
        for replica in self.replicas:
            replica.zero_grad()

    def state_dict(self) -> dict[str, Any]:
        """This rank's optimizer states and fp32 copies."""
        masters = [master.values.detach() for master in self._masters]
        return {"inner": self.inner.state_dict(), "masters": masters}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state_dict` of the same rank of the same plan.

        Raises:
            InputError: the state is of another plan.
        """
        found, expected = (
            [tuple(x.shape) for x in xs]
            for xs in (state["masters"], [m.values for m in self._masters])
        )
        if found != expected:
            raise InputError(
                f"optimizer state has copies of sizes {found}, this plan has {expected}; "
                f"continue with the plan that wrote the checkpoint"
            )
        with torch.no_grad():
            for master, saved in zip(self._masters, state["masters"], strict=True):
                master.values.copy_(saved)
        self.inner.load_state_dict(state["inner"])


class Masters:
    """The fp32 copy of this rank's share of one bucket (the whole bucket if nothing is sharded)."""

    def __init__(self, bucket: Bucket, buckets: GradientBuckets) -> None:
        self._bucket = bucket
        self._group = buckets.groups.shard
        whole = torch.zeros_like(bucket.flat, dtype=torch.float32)
        for place, parameter in _places(bucket, whole):
            place.copy_(local_tensor(parameter))
        self.values = nn.Parameter(whole[bucket.share].clone())

    def load_gradient(self) -> None:
        """Point the copy's gradient at the bucket; a bf16 gradient is widened."""
        self.values.grad = self._bucket.flat[self._bucket.share].to(torch.float32)

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def write_back(self) -> None:
        """Round the copy into the parameters, all shares of it."""
        first = local_tensor(self._bucket.parameters[0])
        mine = self.values.to(first.dtype)
        whole = mine
        if self._group is not None:
            whole = torch.empty_like(self._bucket.flat, dtype=first.dtype)
            ALL_GATHER(whole, mine, group=self._group)
        for place, parameter in _places(self._bucket, whole):
            local_tensor(parameter).copy_(place)
        self.values.grad = None


def needs_masters(replica: Replica) -> bool:
    """Whether updates go through fp32 copies: bf16 parameters, or shares of ZeRO-1."""
    if replica.buckets is None:
        return False
    dtypes = {parameter.dtype for parameter in replica.stage.parameters()}
    return replica.buckets.sharded or dtypes != {torch.float32}


def gradient_norm(replicas: Sequence[Replica], plan: Plan) -> float:
    """Euclidean norm of the gradient of the whole model, the same on every rank.

    Each rank adds the squares of what it holds, divided by the number of ranks that hold the
    same values; one all-reduce of a scalar over all ranks.
    """
    device = next(replicas[0].stage.parameters()).device
    total = torch.zeros((), dtype=torch.float32, device=device)
    for replica in replicas:
        copied = replica.stage.tied_parameters() if replica.stage.embedding is None else ()
        for parameter, piece, shared in _held(replica, plan):
            if not any(parameter is other for other in copied):
                total += piece.float().square().sum() / shared
    dist.all_reduce(total)
    return float(total.sqrt())


def _held(replica: Replica, plan: Plan) -> Iterator[tuple[nn.Parameter, Tensor, int]]:
    """(parameter, values of its gradient here, ranks of this stage that hold the same values)."""
    ranks = plan.dp * plan.tp
    if replica.buckets is None:
        for parameter in replica.stage.parameters():
            if parameter.grad is not None:
                yield parameter, local_tensor(parameter.grad), ranks // _parts(parameter)
        return
    shards = plan.dp_shard if replica.buckets.sharded else 1
    for bucket in replica.buckets.buckets:
        for parameter, piece in bucket.pieces():
            yield parameter, piece, ranks // _parts(parameter) // shards


def _parts(parameter: nn.Parameter) -> int:
    """Into how many parts a parameter is split over ranks."""
    if not isinstance(parameter, DTensor):
        return 1
    parts = 1
    for dim, placement in enumerate(parameter.placements):
        parts *= 1 if placement.is_replicate() else parameter.device_mesh.size(dim)
    return parts


def _direct_groups(replicas: Sequence[Replica]) -> list[list[nn.Parameter]]:
    """Parameters updated as they are, apart by mesh: torch cannot update a mixture in one call."""
    groups: dict[Any, list[nn.Parameter]] = {}
    for replica in replicas:
        if not needs_masters(replica):
            for parameter in trainable(replica.stage.named_parameters()).values():
                mesh = parameter.device_mesh if isinstance(parameter, DTensor) else None
                groups.setdefault(mesh, []).append(parameter)
    return list(groups.values())


def _build(groups: list[list[nn.Parameter]], config: OptimizerConfig) -> torch.optim.Optimizer:
    given = [{"params": parameters} for parameters in groups]
    if config.name == "sgd":
        return torch.optim.SGD(given, lr=config.learning_rate, weight_decay=config.weight_decay)
    if config.name == "adamw":
        return torch.optim.AdamW(
            given,
            lr=config.learning_rate,
            betas=config.betas,
            eps=config.eps,
            weight_decay=config.weight_decay,
            fused=True,  # a quarter of the time of one kernel per operation, on CPU too
        )
    raise InputError(f"optimizer={config.name!r} is unknown; allowed: adamw, sgd")


def _hand_over(replica: Replica, buckets: GradientBuckets) -> None:
    for parameter in trainable(replica.stage.named_parameters()).values():
        parameter.grad = like_parameter(parameter, buckets.gradient(parameter))


def _places(bucket: Bucket, flat: Tensor) -> Iterator[tuple[Tensor, nn.Parameter]]:
    """Each parameter's place in a buffer of the bucket's layout."""
    start = 0
    for parameter in bucket.parameters:
        local = local_tensor(parameter)
        yield flat[start : start + local.numel()].view(local.shape), parameter
        start += local.numel()
