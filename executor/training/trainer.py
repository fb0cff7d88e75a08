"""One rank's part of a plan, ready to train: its steps, gradients and losses."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh

from executor.model.loss import LossFn
from executor.parallel.experts import ExpertPlace
from executor.parallel.held_twice import sum_copies, sum_tied_gradients
from executor.parallel.replica import Replica
from executor.pipeline.runner import PipelineRunner
from executor.training.optimizer import StageOptimizer
from executor.training.scaling import SMALLEST_SCALE
from parsim.model.reader import Description
from parsim.plan import Plan
from parsim.schedule import Schedule


@dataclass(slots=True, kw_only=True)
class Trainer:
    """What a rank needs to take steps; `replicas` are its stages in ascending order.

    `tied` are the ranks with the copies of a tied table, `copies` those with the same stages of a
    pipeline that runs both ways, `partners` those that keep one another's activations, `context`
    those with the other tokens of this rank's sequences.
    """

    spec: Description
    plan: Plan
    mesh: DeviceMesh
    schedule: Schedule
    replicas: tuple[Replica, ...]
    loss_fn: LossFn
    optimizer: StageOptimizer
    runner: PipelineRunner | None = None
    tied: dist.ProcessGroup | None = None
    copies: dist.ProcessGroup | None = None
    partners: dist.ProcessGroup | None = None
    context: dist.ProcessGroup | None = None
    experts: ExpertPlace | None = None

    def backward(self, tokens: Tensor, targets: Tensor) -> list[Tensor]:
        """Forward and backward of this replica's batch; losses where the last stage is.

        The host does not wait for them: they stay on the device. Gradients are averaged over
        micro-batches and replicas, and summed over the two copies of a tied table, or of a model.
        """
        self.optimizer.zero_grad()
        if self.runner is None:
            return self.replicas[0].accumulate(tokens, targets, self.loss_fn)
        losses_here = self.runner.step(tokens, targets)
        for replica in self.replicas:
            replica.finish()
        sum_copies(self.by_place, self.copies)
        sum_tied_gradients(self.replicas, self.tied)
        return losses_here

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def evaluate(self, batches: Iterable[tuple[Tensor, Tensor]]) -> list[list[float]]:
        """Losses of this replica's parts of batches, as `step`, by forwards without dropout."""
        modules = [replica.module for replica in self.replicas]
        for module in modules:
            module.eval()
        only = self.replicas[0]
        forwards = None if self.runner is None else self.runner.evaluation()
        losses = [
            _known(forwards(*batch) if forwards else only.losses(*batch, self.loss_fn))
            for batch in batches
        ]
        for replica, module in zip(self.replicas, modules, strict=True):
            module.train()
            replica.reshard()
        return losses

    def step(self, tokens: Tensor, targets: Tensor) -> list[float]:
        """One training step of this replica's batch; losses where the last stage is."""
        losses = self.backward(tokens, targets)
        self.optimizer.clip()
        self.optimizer.step()
        return _known(losses)

    def gradients(self, tokens: Tensor, targets: Tensor) -> list[float]:
        """Run `backward` and give the losses as numbers, for which the host waits.

        In fp16 the gradients are those at the first scale of the loss at which none overflows.
        """
        losses, scaling = self.backward(tokens, targets), self.optimizer.scaling
        while scaling is not None:
            self.optimizer.unscale()
            if scaling.step() or scaling.scale <= SMALLEST_SCALE:
                break
            losses = self.backward(tokens, targets)
        return _known(losses)

    @property
    def by_place(self) -> list[Replica]:
        """This rank's stages by their place in the model, from its input on."""
        stages = self.schedule.stages_on(self.mesh["pp"].get_local_rank())
        pairs = zip(stages, self.replicas, strict=True)
        ordered = sorted(pairs, key=lambda pair: pair[0] % self.schedule.depth)
        return [replica for _, replica in ordered]

    def groups(self) -> list[dist.ProcessGroup]:
        """All groups of ranks that exchange something."""
        routed = [] if self.experts is None else self.experts.groups()
        others = (self.context, self.tied, self.copies, self.partners)
        present = [group for group in others if group is not None]
        return [*self.mesh.get_all_groups(), *present, *routed]


def _known(losses: Sequence[Tensor]) -> list[float]:
    """Losses as numbers: one copy from the device for all of them."""
    return [] if not losses else [float(loss) for loss in torch.stack(list(losses)).tolist()]
