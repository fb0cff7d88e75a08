"""Times whole layers as the executor runs them: what kernels by themselves do not show.

Python between kernels, views and copies, autograd, tensor-parallel borders. A chain of layers runs
forward and backward as in a step; embedding and head, which exist once, by themselves.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from statistics import median
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh

from executor.calibration.workloads import Workload
from executor.loss import loss
from executor.mesh import build_mesh
from executor.module import Stage, build_stage
from executor.parallel.data import apply_data_parallel
from executor.parallel.precision import storage_dtype
from executor.parallel.tensor import apply_tensor_parallel

SHARDED = "sharded"
"""Part of a sample of what ZeRO-3 adds to a whole model."""
LEAST_ADDED = 0.02
"""Share of a plain pass that sharding adds at least: the difference of two times may be below 0."""


class LayerSample(NamedTuple):
    """Median seconds of one layer's forward and backward; `part` is the Layer's name."""

    workload: Workload
    part: str
    forward: float
    backward: float


class LayerBench:
    """Builds a workload's stage on every rank and times its parts."""

    def __init__(self, device: torch.device, tensor_mesh: DeviceMesh | None) -> None:
        self.device = device
        self.mesh = tensor_mesh

    def runs(self, workload: Workload) -> bool:
        """Whether there are enough ranks for the workload's split."""
        return workload.plan.tp == 1 or (
            self.mesh is not None and workload.plan.tp == self.mesh.size()
        )

    def samples(self, workload: Workload, seconds: float) -> Iterator[LayerSample]:
        """Time the parts; to be called on all ranks."""
        stage = self._stage(workload)
        size = (workload.plan.microbatch_size, workload.spec.seq_len)
        tokens = torch.randint(workload.spec.vocab_size, size, device=self.device)
        batch, length = size
        local = length // workload.plan.tp if workload.plan.sequence_parallel else length
        hidden = torch.randn(batch, local, workload.spec.hidden_size, device=self.device)
        hidden = hidden.to(storage_dtype(workload.plan))
        count = len(stage.layers)
        chain = nn.Sequential(*stage.layers.values())
        names = {layer.name for layer in workload.model.layers}
        if len(names) == 1:  # of a chain of dense layers and mixtures neither would be known
            one = (x / count for x in self._times(chain, hidden, None, seconds))
            yield LayerSample(workload, names.pop(), *one)
        if workload.plan.tp > 1 or stage.embedding is None or stage.head is None:
            return
        found = self._times(stage.embedding, tokens, None, 0.2 * seconds)
        yield LayerSample(workload, "embedding", *found)
        found = self._times(stage.head, hidden, tokens, 0.5 * seconds)
        yield LayerSample(workload, "head", *found)
        if self.mesh is not None and not workload.spec.gated_mlp:
            yield self._sharded(workload, stage, tokens, seconds)

    def _sharded(
        self, workload: Workload, stage: Stage, tokens: Tensor, seconds: float
    ) -> LayerSample:
        """What ZeRO-3 over all ranks adds to a whole model's forward and backward."""
        size = dist.get_world_size()
        plan = replace(workload.plan, dp_shard=size, zero_stage=3)
        plain = self._times(stage, tokens, tokens, seconds)
        mesh = build_mesh(plan, self.device.type)
        alike = Workload(spec=workload.spec, plan=plan)
        replica = apply_data_parallel(self._stage(alike), plan, mesh)
        whole = self._times(replica.module, tokens, tokens, seconds)
        pairs = zip(whole, plain, strict=True)
        added = (max(sharded - alone, LEAST_ADDED * alone) for sharded, alone in pairs)
        return LayerSample(alike, SHARDED, *added)

    def _stage(self, workload: Workload) -> Stage:
        stage = build_stage(
            workload.spec,
            first_layer=0,
            num_layers=workload.spec.num_layers,
            embedding=True,
            head=True,
            device=self.device,
            dtype=storage_dtype(workload.plan),
            recompute=workload.plan.recompute,
        )
        if workload.plan.tp > 1 and self.mesh is not None:
            split = workload.plan.sequence_parallel
            apply_tensor_parallel(stage, self.mesh, sequence_parallel=split)
        return stage

    def _times(
        self, part: nn.Module, inputs: Tensor, targets: Tensor | None, seconds: float
    ) -> tuple[float, float]:
        """Median forward and backward; gradients are added to earlier ones, as in a step."""
        rounds = [self._once(part, inputs, targets) for _ in range(2)]
        lasted = torch.tensor(sum(rounds[-1]), device=self.device)
        dist.broadcast(lasted, 0)
        count = min(max(int(seconds / float(lasted)), 3), 30)
        rounds = [self._once(part, inputs, targets) for _ in range(count)]
        return median(ahead for ahead, _ in rounds), median(behind for _, behind in rounds)

    def _once(self, part: nn.Module, inputs: Tensor, targets: Tensor | None) -> tuple[float, float]:
        if inputs.is_floating_point():
            inputs = inputs.detach().clone().requires_grad_(True)
        began = self._now()
        out = part(inputs)
        out = out if targets is None else loss(out, targets)
        middle = self._now()
        grad = torch.ones_like(out)
        behind = self._now()
        out.backward(grad)
        return middle - began, self._now() - behind

    def _now(self) -> float:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return time.perf_counter()
