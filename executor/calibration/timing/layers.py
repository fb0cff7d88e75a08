"""Times whole layers as the executor runs them: what kernels by themselves do not show.

Python between kernels, views and copies, autograd, tensor-parallel borders. A chain of layers runs
forward and backward as in a step; embedding and head, which exist once, by themselves.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from math import hypot, log, pi, sqrt
from statistics import median
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from executor.calibration.cases.workloads import Workload
from executor.calibration.choice.layer_tasks import BLOCK, EMBEDDING, SHARDED, LayerTask
from executor.calibration.timing.queue import BUSY, Queue
from executor.devices.accelerator import accelerator
from executor.devices.mesh import build_mesh
from executor.measure.exposed import exposed_of, overlap
from executor.measure.traffic import Traffic
from executor.model.loss import loss
from executor.model.module import build_stage
from executor.model.stage import Stage
from executor.parallel.data import LossFn, apply_data_parallel
from executor.parallel.precision import storage_dtype
from executor.parallel.tensor import apply_tensor_parallel
from parsim.cost.layer.layers import WAITED

LEAST_WAITED = 0.01
"""Share: what collectives add is never without any wait."""
WARM_UP, LEAST_ROUNDS, MOST_ROUNDS = 2, 3, 30
MOST_SCATTER = 1.0
"""A difference of two times that are nearly equal is unknown, and no more than that."""
WATCHED = 3
"""Rounds whose waits are watched."""
LEAST_ADDED = 0.02
"""Share of a plain pass that sharding adds at least: the difference of two times may be below 0."""


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


class Passes(NamedTuple):
    """Median seconds of forward and backward over some rounds, and how sure the medians are."""

    forward: float
    backward: float
    scatter: tuple[float, float] = (0.0, 0.0)

    def divided(self, count: int) -> Passes:
        """The seconds of one of several layers."""
        return self._replace(forward=self.forward / count, backward=self.backward / count)


class Bundle(NamedTuple):
    """A workload's stage with its inputs: tokens, and the hidden states between layers."""

    stage: Stage
    tokens: Tensor
    hidden: Tensor


class LayerBench:
    """Builds a workload's stage on every rank and times its parts."""

    def __init__(self, device: torch.device, *, alone: bool = False, idle: bool = False) -> None:
        """Args: `alone` leaves out what several ranks do together, `idle` what this rank does."""
        self.device = device
        self.idle = idle
        self.world = dist.get_world_size()
        self.together = self.world > 1 and not alone
        self._meshes: dict[int, DeviceMesh] = {}
        self._made: tuple[Workload, Bundle] | None = None
        self.queued: list[float] = []

    def runs(self, workload: Workload) -> bool:
        """Whether the ranks make up groups of the workload's split."""
        tp = workload.plan.tp
        return tp == 1 or (self.together and self.world % tp == 0)

    def _mesh(self, tp: int) -> DeviceMesh:
        """The tensor ranks of this one: neighbours."""
        if tp not in self._meshes:
            shape = (self.world // tp, tp)
            mesh = init_device_mesh(self.device.type, shape, mesh_dim_names=("dp", "tp"))
            self._meshes[tp] = mesh["tp"]
        return self._meshes[tp]

    def samples(self, task: LayerTask, seconds: float) -> list[LayerSample]:
        """Time one part of a workload; to be called on all ranks. Its seconds stand first."""
        workload = task.workload
        bundle = self._bundle(workload)
        if task.part == BLOCK:
            return self._block(workload, bundle, seconds)
        if task.part == SHARDED:
            return self._sharded(workload, bundle, seconds)
        part = bundle.stage.embedding if task.part == EMBEDDING else bundle.stage.head
        if part is None:
            return []
        inputs, targets = (
            (bundle.tokens, None) if task.part == EMBEDDING else (bundle.hidden, bundle.tokens)
        )
        times = self._times(part, inputs, targets, seconds, self._loss(workload))
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
        local = length // workload.plan.tp if workload.plan.sequence_parallel else length
        hidden = torch.randn(batch, local, workload.spec.hidden_size, device=self.device)
        return Bundle(self._stage(workload), tokens, hidden.to(storage_dtype(workload.plan)))

    def _loss(self, workload: Workload) -> LossFn:
        """The loss of whole logits, or of a tensor rank's part of them."""
        tp = workload.plan.tp
        return loss if tp == 1 else partial(loss, group=self._mesh(tp).get_group())

    def _block(self, workload: Workload, bundle: Bundle, seconds: float) -> list[LayerSample]:
        """One of a chain of equal layers, and what split ones wait for their collectives."""
        chain, name = nn.Sequential(*bundle.stage.layers.values()), workload.model.kinds[0].name
        times = self._times(chain, bundle.hidden, None, seconds).divided(len(chain))
        samples = [LayerSample(workload, name, *times)]
        if workload.plan.tp > 1:
            waited = self._waits(chain, bundle.hidden, None, (0.0, 0.0))
            samples.append(LayerSample(workload, f"{name}{WAITED}", *waited))
        return samples

    def _sharded(self, workload: Workload, bundle: Bundle, seconds: float) -> list[LayerSample]:
        """What ZeRO-3 over all ranks adds to a whole model's passes, and what they then wait."""
        size, tokens = dist.get_world_size(), bundle.tokens
        plan = replace(workload.plan, dp_shard=size, zero_stage=3)
        plain = self._times(bundle.stage, tokens, tokens, 0.5 * seconds)
        mesh = build_mesh(plan, self.device.type)
        alike = Workload(spec=workload.spec, plan=plan)
        replica = apply_data_parallel(self._stage(alike), plan, mesh)
        whole = self._times(replica.module, tokens, tokens, 0.5 * seconds)
        alone = plain.forward, plain.backward
        added = [
            max(sharded - bare, LEAST_ADDED * bare)
            for sharded, bare in zip(whole[:2], alone, strict=True)
        ]
        # the scatter of a difference: that of both, in seconds, over the difference
        scatter = tuple(
            min(hypot(sd * both, bare_sd * bare) / more, MOST_SCATTER)
            for sd, both, bare_sd, bare, more in zip(
                whole.scatter, whole[:2], plain.scatter, alone, added, strict=True
            )
        )
        waited = self._waits(replica.module, tokens, tokens, alone)
        return [
            LayerSample(alike, SHARDED, added[0], added[1], (scatter[0], scatter[1])),
            LayerSample(alike, f"{SHARDED}{WAITED}", *waited),
        ]

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
        self,
        part: nn.Module,
        inputs: Tensor,
        targets: Tensor | None,
        seconds: float,
        criterion: LossFn = loss,
    ) -> Passes:
        """Median forward and backward; gradients are added to earlier ones, as in a step.

        Where other processes use the machine too, the least round, as for kernels: one that is
        late makes all ranks late that exchange something with it. A rank that is idle takes part
        in agreeing on the count alone.
        """
        once = partial(self._once, part, inputs, targets, criterion)
        rounds = [] if self.idle else [once() for _ in range(WARM_UP)]
        lasted = torch.tensor(sum(rounds[-1]) if rounds else 0.0, device=self.device)
        dist.broadcast(lasted, 0)
        if self.idle:
            return Passes(0.0, 0.0)
        count = min(max(int(seconds / float(lasted)), LEAST_ROUNDS), MOST_ROUNDS)
        queue = Queue()
        rounds = [once() for _ in range(count)]
        self.queued.append(queue.share)
        return passes_of(rounds, busy=queue.share > BUSY)

    def _once(
        self, part: nn.Module, inputs: Tensor, targets: Tensor | None, criterion: LossFn
    ) -> tuple[float, float]:
        began, middle, behind, end = self._marks(part, inputs, targets, criterion)
        return middle - began, end - behind

    def _marks(
        self,
        part: nn.Module,
        inputs: Tensor,
        targets: Tensor | None,
        criterion: LossFn = loss,
    ) -> tuple[float, float, float, float]:
        """When forward and backward begin and end."""
        if inputs.is_floating_point():
            inputs = inputs.detach().clone().requires_grad_(True)
        began = self._now()
        out = part(inputs)
        out = out if targets is None else criterion(out, targets)
        middle = self._now()
        grad = torch.ones_like(out)
        behind = self._now()
        out.backward(grad)
        return began, middle, behind, self._now()

    def _now(self) -> float:
        accelerator(self.device).synchronize()
        return time.perf_counter()


def passes_of(rounds: Sequence[tuple[float, float]], *, busy: bool = False) -> Passes:
    """Typical seconds of rounds and their scatter, standard deviations of the logarithm.

    The median, whose scatter is 1.4826 MAD sqrt(pi / 2n), that of a normal's median; on a busy
    machine the least round, whose scatter is its distance from the median.
    """
    chosen, scatters = [], []
    for seconds in zip(*rounds, strict=True):
        middle, least = median(seconds), min(seconds)
        deviation = 1.4826 * median(abs(x - middle) for x in seconds) / middle
        chosen.append(least if busy else middle)
        scatters.append(log(middle / least) if busy else deviation * sqrt(0.5 * pi / len(seconds)))
    return Passes(chosen[0], chosen[1], (scatters[0], scatters[1]))
