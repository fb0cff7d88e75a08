"""Times whole layers as the executor runs them: what kernels by themselves do not show.

Python between kernels, views and copies, autograd, tensor-parallel borders. A chain of layers runs
forward and backward as in a step; embedding and head, which exist once, by themselves.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh

from executor.calibration.cases.workloads import Workload
from executor.calibration.choice.layer_tasks import BLOCK, EMBEDDING, SHARDED, LayerTask
from executor.calibration.timing.pace import Pace
from executor.calibration.timing.passes import Forward, PassTimer
from executor.devices.mesh import build_mesh, mesh_of
from executor.model.first_values import seeded
from executor.model.loss import LossFn, cross_entropy
from executor.model.mixture.experts import WHOLE
from executor.model.module import build_stage
from executor.model.stage import Stage
from executor.parallel.context import apply_context_parallel
from executor.parallel.data import apply_data_parallel
from executor.parallel.experts import ExpertPlace, apply_expert_parallel, expert_place
from executor.parallel.precision import autocast, storage_dtype
from executor.parallel.tensor import apply_tensor_parallel
from parsim.cluster.measured.layer_kinds import WAITED
from parsim.plan import Plan


class LayerSample(NamedTuple):
    """Median seconds of one layer's forward and backward.

    `part` is the Layer's name; with WAITED behind it, instead of seconds, the share of them that
    the layer waited for collectives. `scatter` of both is the standard deviation (ln) by which a
    second timing would differ.
    """

    workload: Workload
    part: str
    forward: float
    backward: float
    scatter: tuple[float, float] = (0.0, 0.0)


class Bundle(NamedTuple):
    """A workload's stage with its inputs: tokens, and the hidden states between layers."""

    stage: Stage
    tokens: Tensor
    hidden: Tensor


class LayerBench:
    """Builds a workload's stage on every rank and times its parts."""

    def __init__(
        self, device: torch.device, pace: Pace, *, alone: bool = False, idle: bool = False
    ) -> None:
        """Args: `alone` leaves out what several ranks do together, `idle` what this rank does."""
        self.device = device
        self.world = dist.get_world_size()
        self.together = self.world > 1 and not alone
        self._made: tuple[Workload, Bundle] | None = None
        self._timer = PassTimer(device, pace, idle=idle)

    @property
    def queued(self) -> list[float]:
        """The shares of each timing in which others had this rank's core, or took its speed."""
        return self._timer.queued

    def runs(self, workload: Workload) -> bool:
        """Whether the ranks make up groups of the workload's splits."""
        together = workload.plan.world_size
        return together == 1 or (self.together and self.world % together == 0)

    def _mesh(self, plan: Plan, axis: str) -> DeviceMesh:
        """This rank's tensor ranks, which are neighbours, or its context ranks."""
        ranks = torch.arange(self.world).reshape(-1, plan.cp, plan.tp)
        return mesh_of(self.device.type, ranks, ("dp", "cp", "tp"))[axis]

    def samples(self, task: LayerTask, seconds: float) -> list[LayerSample]:
        """Time one part of a workload; to be called on all ranks. Its seconds stand first."""
        workload = task.workload
        bundle = self._bundle(workload)
        if task.part == BLOCK:
            return self._block(task, bundle, seconds)
        if task.part == SHARDED:
            return self._sharded(workload, bundle, seconds)
        part = bundle.stage.embedding if task.part == EMBEDDING else bundle.stage.head
        if part is None:
            return []
        inputs, targets = (
            (bundle.tokens, None) if task.part == EMBEDDING else (bundle.hidden, bundle.tokens)
        )
        call, loss = self._in_precision(workload, part), self._loss(workload)
        times = self._timer.times(call, inputs, targets, seconds, loss, exchanges=task.exchanges)
        return [LayerSample(workload, task.part, *times)]

    def forget(self) -> None:
        """Give the memory of the last workload back."""
        self._made = None

    def _bundle(self, workload: Workload) -> Bundle:
        """The stage and inputs of a workload; the last one's are kept, for its other parts."""
        if self._made is None or self._made[0] != workload:
            self.forget()
            self._made = (workload, self._build(workload))
        return self._made[1]

    def _build(self, workload: Workload) -> Bundle:
        batch, length = workload.plan.microbatch_size, workload.spec.seq_len
        tokens = torch.randint(workload.spec.vocab_size, (batch, length), device=self.device)
        length //= workload.plan.cp
        local = length // workload.plan.tp if workload.plan.sequence_parallel else length
        hidden = torch.randn(batch, local, workload.spec.hidden_size, device=self.device)
        return Bundle(self._stage(workload), tokens, hidden.to(storage_dtype(workload.plan)))

    def _loss(self, workload: Workload) -> LossFn:
        """The loss of whole logits, or of a tensor rank's part of them."""
        plan = workload.plan
        return (
            cross_entropy
            if plan.tp == 1
            else partial(cross_entropy, group=self._mesh(plan, "tp").get_group())
        )

    def _in_precision(self, workload: Workload, part: nn.Module) -> Forward:
        """A part's forward as a step has it: under autocast where the plan says so."""

        def forward(x: Tensor) -> Tensor:
            with autocast(workload.plan, self.device.type):
                return part(x)

        return forward

    def _block(self, task: LayerTask, bundle: Bundle, seconds: float) -> list[LayerSample]:
        """One of a chain of equal layers, and what ranks that exchange something in it wait."""
        chain, workload = nn.Sequential(*bundle.stage.layers.values()), task.workload
        call = self._in_precision(workload, chain)
        times = self._timer.times(call, bundle.hidden, None, seconds, exchanges=task.exchanges)
        samples = [LayerSample(workload, task.layer, *times.divided(len(chain)))]
        if task.exchanges:
            waited = self._timer.waits(call, bundle.hidden, None, (0.0, 0.0))
            samples.append(LayerSample(workload, f"{task.layer}{WAITED}", *waited))
        return samples

    def _sharded(self, workload: Workload, bundle: Bundle, seconds: float) -> list[LayerSample]:
        """What ZeRO-3 over all ranks adds to a whole model's passes, and what they then wait."""
        size, tokens = dist.get_world_size(), bundle.tokens
        plan = replace(workload.plan, dp_shard=size, zero_stage=3)
        stage = self._in_precision(workload, bundle.stage)
        plain = self._timer.times(stage, tokens, tokens, 0.5 * seconds)
        mesh = build_mesh(plan, self.device.type)
        alike = Workload(spec=workload.spec, plan=plan)
        replica = apply_data_parallel(self._stage(alike), plan, mesh)
        split = self._in_precision(alike, replica.module)
        whole = self._timer.times(split, tokens, tokens, 0.5 * seconds, exchanges=True)
        waited = self._timer.waits(split, tokens, tokens, (plain.forward, plain.backward))
        return [
            LayerSample(alike, SHARDED, *whole.beyond(plain)),
            LayerSample(alike, f"{SHARDED}{WAITED}", *waited),
        ]

    def _experts(self, workload: Workload) -> ExpertPlace | None:
        """Where this rank stands among all: those that share experts, and copies of these."""
        plan, spec = workload.plan, workload.spec
        if plan.ep * plan.etp == 1:
            return None
        full = replace(plan, dp_replicate=self.world // (plan.tp * plan.cp))
        return expert_place(full, spec, self.device.type)

    def _stage(self, workload: Workload) -> Stage:
        """A workload's layers on this rank, split as its plan says."""
        experts = self._experts(workload)
        stage = build_stage(
            workload.spec,
            first_layer=0,
            num_layers=workload.spec.num_layers,
            embedding=True,
            head=True,
            device=self.device,
            dtype=storage_dtype(workload.plan),
            recompute=workload.plan.recompute,
            share=WHOLE if experts is None else experts.share,
            values=seeded(0, self.device),  # on a GPU, whose host would be slower than the timing
        )
        plan = workload.plan
        if plan.cp > 1:
            apply_context_parallel(stage, plan, self._mesh(plan, "cp").get_group())
        if plan.tp > 1:
            split = plan.sequence_parallel
            apply_tensor_parallel(stage, self._mesh(plan, "tp"), sequence_parallel=split)
        apply_expert_parallel(stage, experts)
        return stage
