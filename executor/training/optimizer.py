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

With `optimizer_offload` the fp32 copy and the states are in the host's memory, where it is another
one than the device's (`host_values`).

Between the first forward and the last backward stage 2 has the gathered parameters beside its
shards, 4 (fp32) or 2 bytes each, and stage 3 those of the layer at work and the next one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn

from executor.devices.machine import on_idle_cores
from executor.parallel.gradients.layout import trainable
from executor.parallel.gradients.split import like_parameter
from executor.parallel.replica import Replica
from executor.training.host_values import HostLink, host_link
from executor.training.norm import clip_gradients, gradient_values
from executor.training.scaling import loss_scaling
from executor.training.update_rule import OptimizerConfig, build_optimizer
from executor.training.updated_values import LocalPart, Masters, StatePiece, needs_masters


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
        self._link = host_link(first.plan, device)
        self.masters = _masters(replicas, self._link)
        self._direct = _direct(replicas, self._link)
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
        updated: list[Masters | LocalPart] = [*self.masters.values(), *self._direct.values()]
        for values in updated:
            values.load_gradient()
        if self._link is None:
            self.inner.step()
        else:
            self._link.wait()
            for values in updated:
                values.arrive()
            with on_idle_cores():
                self.inner.step()
        for values in updated:
            values.write_back()

    def reload(self) -> None:
        """Let copies of parameters on the host be as these are now."""
        for part in self._direct.values():
            part.reload()

    def zero_grad(self) -> None:
        """Forget all gradients."""
        for replica in self.replicas:
            replica.zero_grad()

    def state_pieces(self) -> Iterator[StatePiece]:
        """What updates depend on beside the parameters; to be read, or to be written in place.

        Ranks that hold the same values of the same parameter have equal ones.
        """
        if not self.inner.state:
            self._begin()
        for name, part in self._direct.items():
            for kind, state in self._states(part.values):
                yield StatePiece(kind, name, part.parameter, 0, state)
        for master in self.masters.values():
            yield from master.pieces("weight", master.values.detach())
            for kind, state in self._states(master.values):
                yield from master.pieces(kind, state)

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
        """Have torch make its states, with an update of rate 0 from gradients of 0.

        They are then as before the first update: 0, from which momentum begins as from none.
        """
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
        for state in self.inner.state.values():
            for values in state.values():
                values.zero_()


def _masters(replicas: Sequence[Replica], link: HostLink | None) -> dict[str, Masters]:
    """Shares of buckets whose fp32 values are updated in place of the parameters."""
    return {
        f"{bucket.names[0]}.{bucket.groups.share_name}": Masters(bucket, link)
        for replica in replicas
        if replica.buckets is not None and needs_masters(replica)
        for bucket in replica.buckets.buckets
    }


def _direct(replicas: Sequence[Replica], link: HostLink | None) -> dict[str, LocalPart]:
    """Parameters that are updated themselves, by name."""
    return {
        name: LocalPart(parameter, link)
        for replica in replicas
        if not needs_masters(replica)
        for name, parameter in trainable(replica.stage.named_parameters()).items()
    }
