"""SGD and AdamW over what a rank updates, at a rate that follows a schedule.

Parameters in fp32 that this rank updates alone or as shards go to torch's optimizer as they are.
16-bit parameters are updated in fp32 copies ("masters") and written back. With ZeRO-1 a rank
updates its share of each bucket, of fp32 parameters in their own place, and the ranks then gather
each other's shares. Both optimizers treat each value apart from all others, so cutting a bucket
anywhere changes no result, and of split parameters torch gets the local parts: to unwrap a DTensor
and what belongs to it takes it 15 to 30 us (one core of an EPYC), half of the update of 4 M
parameters in 68 tensors.

Bytes a parameter that stay, over n ranks of dp_shard x cp, AdamW, gradients in fp32:

    zero_stage   fp32, bf16_amp            bf16
    0            4 + 4 + 8                 2 + 4 + 4 + 8
    1            4 + 4 + 8/n               2 + 4 + (4 + 8)/n
    2, 3         (4 + 4 + 8)/n             (4 + 4 + 8)/n, the shards being the fp32 copy

Between the first forward and the last backward stage 2 has the gathered parameters beside its
shards, 4 (fp32) or 2 bytes each, and stage 3 those of the layer at work and the next one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from executor.devices.compat import stored_tensor
from executor.parallel.buckets import (
    ALL_GATHER,
    Bucket,
    local_tensor,
    trainable,
)
from executor.parallel.data import Replica, like_parameter
from executor.training.norm import clip_gradients, gradient_values
from executor.training.rate import Rate
from executor.training.scaling import FIRST_SCALE, loss_scaling
from parsim.errors import InputError

Held = tuple[str, str, nn.Parameter, int, Tensor]
"""A state's kind, its parameter's name, the parameter, and values from the local part's n-th on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerConfig:
    """Which optimizer and its settings; the defaults are those of GPT-3's training.

    `clip` is the norm that gradients are clipped to, 0 if they are not. The `momentum` is that of
    sgd_momentum, `loss_scale` where that of fp16 begins.
    """

    name: str = "adamw"
    rate: Rate = field(default_factory=Rate)
    weight_decay: float = 0.1
    betas: tuple[float, float] = (0.9, 0.95)
    eps: float = 1e-8
    momentum: float = 0.9
    clip: float = 0.0
    loss_scale: float = FIRST_SCALE


class StageOptimizer:
    """Updates the stages of a rank; call `clip` and `step` after `Replica.finish`.

    In fp16 the loss must be scaled by its `scaling`; `skipped` steps updated nothing.
    """

    def __init__(self, replicas: Sequence[Replica], config: OptimizerConfig) -> None:
        self.replicas = tuple(replicas)
        self.norm = torch.zeros(())
        first = self.replicas[0]
        device = torch.device(first.mesh.device_type)
        self.scaling = loss_scaling(first.plan, device, config.loss_scale)
        self.skipped = 0
        self._config = config
        self.masters = {
            f"{bucket.names[0]}.{bucket.groups.place}": Masters(bucket)
            for replica in replicas
            if replica.buckets is not None and needs_masters(replica)
            for bucket in replica.buckets.buckets
        }
        self._direct = {
            name: _Local(parameter)
            for replica in replicas
            if not needs_masters(replica)
            for name, parameter in trainable(replica.stage.named_parameters()).items()
        }
        shares = {name: master.values for name, master in self.masters.items()}
        direct = {name: part.values for name, part in self._direct.items()}
        groups = [group for group in (shares, direct) if group]
        self._updated = {**shares, **direct}
        # a rank may hold empty stages only, but torch wants something to update
        lists = [list(group.values()) for group in groups] or [[nn.Parameter(torch.empty(0))]]
        self.inner = build_optimizer(lists, config)

    def set_rate(self, step: int) -> float:
        """Set the learning rate of a step, counted from 0 over the whole training; return it.

        A step that was skipped moved nothing along the schedule.
        """
        rate = self._config.rate.at(step - self.skipped)
        for group in self.inner.param_groups:
            group["lr"] = rate
        return rate

    def clip(self) -> None:
        """Take the norm of all gradients, and scale them down to the one asked for."""
        self.unscale()
        self.norm = clip_gradients(self.replicas, self._config.clip)

    def unscale(self) -> None:
        """Divide the gradients by the scale of the loss, where it has one."""
        if self.scaling is not None:
            self.scaling.unscale(gradient_values(self.replicas))

    def step(self) -> bool:
        """Update the parameters from the gradients, unless they overflowed; whether it was done."""
        if self.scaling is None:
            self._update()
            return True
        updated = self.scaling.step(self._update)
        self.skipped += not updated
        return updated

    def _update(self) -> None:
        for replica in self.replicas:
            if replica.buckets is not None and not needs_masters(replica):
                for parameter in trainable(replica.stage.named_parameters()).values():
                    parameter.grad = like_parameter(parameter, replica.buckets.gradient(parameter))
        for master in self.masters.values():
            master.load_gradient()
        for part in self._direct.values():
            part.load_gradient()
        self.inner.step()
        for part in self._direct.values():
            part.forget_gradient()
        for master in self.masters.values():
            master.write_back()

    def zero_grad(self) -> None:
        """Forget all gradients."""
        for replica in self.replicas:
            replica.zero_grad()

    def held(self) -> Iterator[Held]:
        """What updates depend on beside the parameters; to be read, or to be written in place.

        Ranks that hold the same values of the same parameter have equal ones.
        """
        if not self.inner.state:
            self._begin()
        for name, part in self._direct.items():
            for kind, state in self._states(part.values):
                yield kind, name, part.parameter, 0, state
        for master in self.masters.values():
            yield from master.held(("weight", master.values.detach()))
            for state in self._states(master.values):
                yield from master.held(state)

    @property
    def updates(self) -> int:
        """How many updates were taken, which AdamW corrects its means by."""
        counts = (state["step"] for state in self.inner.state.values() if "step" in state)
        return int(next(counts, torch.zeros(())))

    @updates.setter
    def updates(self, count: int) -> None:
        for state in self.inner.state.values():
            if "step" in state:
                state["step"].fill_(count)

    def _states(self, values: nn.Parameter) -> Iterator[tuple[str, Tensor]]:
        """What torch keeps of values that it updates, with a name."""
        for kind, state in self.inner.state.get(values, {}).items():
            if isinstance(state, Tensor) and kind != "step":
                yield kind, state

    def _begin(self) -> None:
        """Have torch make its states, with an update of rate 0 from gradients of 0."""
        rates = [group["lr"] for group in self.inner.param_groups]
        for parameter in self._updated.values():
            parameter.grad = torch.zeros_like(parameter)
        for group in self.inner.param_groups:
            group["lr"] = 0.0
        self.inner.step()
        for group, rate in zip(self.inner.param_groups, rates, strict=True):
            group["lr"] = rate
        for parameter in self._updated.values():
            parameter.grad = None


class _Local:
    """What torch updates of one parameter: it itself, or the local part of a split one."""

    def __init__(self, parameter: nn.Parameter) -> None:
        self.parameter = parameter
        split = isinstance(parameter, DTensor)
        self.values = nn.Parameter(stored_tensor(parameter).detach()) if split else parameter

    def load_gradient(self) -> None:
        """Point at the parameter's local values, which FSDP may have moved, and their gradient."""
        if self.values is not self.parameter:
            grad = self.parameter.grad
            self.values.data = stored_tensor(self.parameter).detach()
            self.values.grad = None if grad is None else stored_tensor(grad)

    def forget_gradient(self) -> None:
        """Let the gradient go when the parameter does."""
        if self.values is not self.parameter:
            self.values.grad = None


class Masters:
    """The fp32 values of this rank's share of one bucket (the whole bucket if nothing is sharded).

    The bucket's parameters are moved into one buffer of the bucket's layout. The share of fp32
    parameters is a view of it, so that it costs no memory; that of 16-bit ones is a copy.
    """

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket
        dtype = local_tensor(bucket.parameters[0]).dtype
        self._weights = torch.zeros_like(bucket.flat, dtype=dtype)
        with torch.no_grad():
            for parameter, part in bucket.slices():
                local = stored_tensor(parameter)
                local.data = self._weights[part].view(local.shape).copy_(local)
        self.values = nn.Parameter(self._weights[bucket.share].to(torch.float32))

    def held(self, state: tuple[str, Tensor]) -> Iterator[Held]:
        """A state of the values, parameter by parameter."""
        kind, values = state
        share = self._bucket.share
        for name, (parameter, part) in zip(self._bucket.names, self._bucket.slices(), strict=True):
            low, high = max(part.start, share.start), min(part.stop, share.stop)
            if low < high:
                mine = values[low - share.start : high - share.start]
                yield kind, name, parameter, low - part.start, mine

    def load_gradient(self) -> None:
        """Point the values' gradient at the bucket; a 16-bit gradient is widened."""
        self.values.grad = self._bucket.flat[self._bucket.share].to(torch.float32)

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def write_back(self) -> None:
        """Round the values into the parameters, and gather the other ranks' shares."""
        self.values.grad = None
        mine = self._weights[self._bucket.share]
        if mine.dtype != torch.float32:
            mine.copy_(self.values)
        group = self._bucket.groups.shard
        if group is not None:
            # not in place: gloo may still read the input while it writes the output
            ALL_GATHER(self._weights, mine.clone(), group=group)


def needs_masters(replica: Replica) -> bool:
    """Whether updates go through fp32 copies: 16-bit parameters, or shares of ZeRO-1."""
    if replica.buckets is None:
        return False
    dtypes = {parameter.dtype for parameter in replica.stage.parameters()}
    return replica.buckets.sharded or dtypes != {torch.float32}


def build_optimizer(
    groups: list[list[nn.Parameter]], config: OptimizerConfig
) -> torch.optim.Optimizer:
    """Torch's optimizer of that name over groups of parameters, at the highest of the rates.

    Raises:
        InputError: a name that is none.
    """
    given = [{"params": parameters} for parameters in groups]
    # fused: a quarter of the time of one kernel per operation, on CPU too
    if config.name in ("sgd", "sgd_momentum"):
        return torch.optim.SGD(
            given,
            lr=config.rate.peak,
            momentum=config.momentum if config.name == "sgd_momentum" else 0.0,
            weight_decay=config.weight_decay,
            fused=True,
        )
    if config.name == "adamw":
        return torch.optim.AdamW(
            given,
            lr=config.rate.peak,
            betas=config.betas,
            eps=config.eps,
            weight_decay=config.weight_decay,
            fused=True,
        )
    raise InputError(f"optimizer={config.name!r} is unknown; allowed: adamw, sgd, sgd_momentum")
