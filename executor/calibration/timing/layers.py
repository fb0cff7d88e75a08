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
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from executor.calibration.cases.workloads import Workload
from executor.devices.mesh import build_mesh
from executor.measure.exposed import exposed_of, overlap
from executor.measure.traffic import Traffic
from executor.model.loss import loss
from executor.model.module import build_stage
from executor.model.stage import Stage
from executor.parallel.data import apply_data_parallel
from executor.parallel.precision import storage_dtype
from executor.parallel.tensor import apply_tensor_parallel
from parsim.cost.layer.layers import WAITED

SHARDED = "sharded"
"""Part of a sample of what ZeRO-3 adds to a whole model."""
LEAST_WAITED = 0.01
"""Share: what collectives add is never without any wait."""
EMBEDDING, HEAD = 0.2, 0.5
"""Their seconds over those of the blocks; with and without sharding the whole takes as long."""
WATCHED = 3
"""Rounds whose waits are watched."""
LEAST_ADDED = 0.02
"""Share of a plain pass that sharding adds at least: the difference of two times may be below 0."""


class LayerSample(NamedTuple):
    """Median seconds of one layer's forward and backward.

    `part` is the Layer's name; with WAITED behind it, instead of seconds, the share of them that
    the layer waited for collectives.
    """

    workload: Workload
    part: str
    forward: float
    backward: float


class LayerBench:
    """Builds a workload's stage on every rank and times its parts."""

    def __init__(self, device: torch.device, *, alone: bool = False, idle: bool = False) -> None:
        """Args: `alone` leaves out what several ranks do together, `idle` what this rank does."""
        self.device = device
        self.idle = idle
        self.world = dist.get_world_size()
        self.together = self.world > 1 and not alone
        self._meshes: dict[int, DeviceMesh] = {}

    def runs(self, workload: Workload) -> bool:
        """Whether the ranks make up groups of the workload's split."""
        tp = workload.plan.tp
        return tp == 1 or (self.together and self.world % tp == 0)

    def parts(self, workload: Workload) -> float:
        """How many times the seconds of its blocks a workload takes."""
        if workload.plan.tp > 1:
            return 1.0
        sharded = self.together and not workload.spec.gated_mlp
        return 1.0 + EMBEDDING + HEAD + (2.0 if sharded else 0.0)

    def _mesh(self, tp: int) -> DeviceMesh:
        """The tensor ranks of this one: neighbours."""
        if tp not in self._meshes:
            shape = (self.world // tp, tp)
            mesh = init_device_mesh(self.device.type, shape, mesh_dim_names=("dp", "tp"))
            self._meshes[tp] = mesh["tp"]
        return self._meshes[tp]

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
        names = {layer.name for layer in workload.model.blocks}
        if len(names) == 1:  # of a chain of dense layers and mixtures neither would be known
            name = names.pop()
            times = self._times(chain, hidden, None, seconds)
            yield LayerSample(workload, name, *(x / count for x in times))
            if workload.plan.tp > 1:
                waited = self._waits(chain, hidden, None, (0.0, 0.0))
                yield LayerSample(workload, f"{name}{WAITED}", *waited)
        if workload.plan.tp > 1 or stage.embedding is None or stage.head is None:
            return
        ends = self._times(stage.embedding, tokens, None, EMBEDDING * seconds)
        yield LayerSample(workload, "embedding", *ends)
        ends = self._times(stage.head, hidden, tokens, HEAD * seconds)
        yield LayerSample(workload, "head", *ends)
        if self.together and not workload.spec.gated_mlp:
            yield from self._sharded(workload, stage, tokens, seconds)

    def _sharded(
        self, workload: Workload, stage: Stage, tokens: Tensor, seconds: float
    ) -> Iterator[LayerSample]:
        """What ZeRO-3 over all ranks adds to a whole model's passes, and what they then wait."""
        size = dist.get_world_size()
        plan = replace(workload.plan, dp_shard=size, zero_stage=3)
        plain = self._times(stage, tokens, tokens, seconds)
        mesh = build_mesh(plan, self.device.type)
        alike = Workload(spec=workload.spec, plan=plan)
        replica = apply_data_parallel(self._stage(alike), plan, mesh)
        whole = self._times(replica.module, tokens, tokens, seconds)
        pairs = zip(whole, plain, strict=True)
        added = (max(sharded - alone, LEAST_ADDED * alone) for sharded, alone in pairs)
        yield LayerSample(alike, SHARDED, *added)
        waited = self._waits(replica.module, tokens, tokens, plain)
        yield LayerSample(alike, f"{SHARDED}{WAITED}", *waited)

    def _waits(
        self, part: nn.Module, inputs: Tensor, targets: Tensor | None, alone: tuple[float, float]
    ) -> tuple[float, float]:
        """Median share that forward and backward wait, of what they take beyond `alone` seconds.

        Waits and lengths are of the same rounds, so a busy machine stretches both.
        """
        traffic, shares_waited = Traffic({"tp": ()}, self.device), []
        for _ in range(WATCHED):
            traffic.start()
            began, middle, behind, end = self._marks(part, inputs, targets)
            waits = exposed_of(traffic.stop())
            passes = (began, middle), (behind, end)
            shares_waited.append(
                [
                    overlap(waits, begin, stop)
                    / max(stop - begin - bare, LEAST_ADDED * (stop - begin))
                    for (begin, stop), bare in zip(passes, alone, strict=True)
                ]
            )
        ahead, after = (
            min(max(median(shares), LEAST_WAITED), 1.0)
            for shares in zip(*shares_waited, strict=True)
        )
        return ahead, after

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
        if workload.plan.tp > 1:
            split = workload.plan.sequence_parallel
            apply_tensor_parallel(stage, self._mesh(workload.plan.tp), sequence_parallel=split)
        return stage

    def _times(
        self, part: nn.Module, inputs: Tensor, targets: Tensor | None, seconds: float
    ) -> tuple[float, float]:
        """Median forward and backward; gradients are added to earlier ones, as in a step.

        A rank that is idle takes part in agreeing on the count alone.
        """
        rounds = [] if self.idle else [self._once(part, inputs, targets) for _ in range(2)]
        lasted = torch.tensor(sum(rounds[-1]) if rounds else 0.0, device=self.device)
        dist.broadcast(lasted, 0)
        if self.idle:
            return 0.0, 0.0
        count = min(max(int(seconds / float(lasted)), 3), 30)
        rounds = [self._once(part, inputs, targets) for _ in range(count)]
        return median(ahead for ahead, _ in rounds), median(behind for _, behind in rounds)

    def _once(self, part: nn.Module, inputs: Tensor, targets: Tensor | None) -> tuple[float, float]:
        began, middle, behind, end = self._marks(part, inputs, targets)
        return middle - began, end - behind

    def _marks(
        self, part: nn.Module, inputs: Tensor, targets: Tensor | None
    ) -> tuple[float, float, float, float]:
        """When forward and backward begin and end."""
        if inputs.is_floating_point():
            inputs = inputs.detach().clone().requires_grad_(True)
        began = self._now()
        out = part(inputs)
        out = out if targets is None else loss(out, targets)
        middle = self._now()
        grad = torch.ones_like(out)
        behind = self._now()
        out.backward(grad)
        return began, middle, behind, self._now()

    def _now(self) -> float:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return time.perf_counter()
