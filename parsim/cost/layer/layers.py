"""Seconds of a layer's forward, backward and recomputation for one micro-batch, per plan.

A layer is the sum of its kernels plus the tensor-parallel collectives at the borders of its split
matrices. Host launches are counted apart: where the host cannot launch kernels as fast as the
device runs them, the chunk takes the host's time (cost/step/stage_passes.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np

from parsim.arrays import Array, Flags
from parsim.cluster.measured.layer_kinds import (
    CONTEXT,
    DISPATCHED,
    OF_MAKE_UP,
    SEQUENCE,
    SPLIT,
    WAITED,
)
from parsim.cost.job import Job
from parsim.cost.kernel.quantized import quantization_of
from parsim.cost.kernel.residuals import measured_factor
from parsim.cost.layer.composed import composed_kept
from parsim.cost.layer.kept.operator_tensors import border_bytes
from parsim.cost.layer.kept.recomputed_modules import launched, repeated
from parsim.cost.layer.mixture.dispatch import held_share
from parsim.cost.layer.mixture.kernels import expert_activation
from parsim.cost.layer.operator_kernels import OperatorKernels
from parsim.cost.layer.operator_parts import Exchange, Kernels
from parsim.cost.layer.passes import LayerCost, Pass
from parsim.cost.recorded import step_factor
from parsim.cost.software import Software
from parsim.model.layer import Layer
from parsim.model.operators import Operator
from parsim.model.transformer import BLOCK, EXPERT_BLOCK
from parsim.plan import Plan, PlanTable


def measured_kind(plan: Plan, layer: str) -> str:
    """What the times of a plan's layer of this name are called, without the direction.

    Context ranks exchange something in blocks, not in the embedding and the head; ranks that share
    experts in blocks that have some.
    """
    block = layer.removesuffix(WAITED).partition(OF_MAKE_UP)[0]
    split = "" if plan.tp == 1 else SEQUENCE if plan.sequence_parallel else SPLIT
    shared = CONTEXT if plan.cp > 1 and block.endswith(BLOCK) else ""
    spread = DISPATCHED if plan.ep * plan.etp > 1 and block == EXPERT_BLOCK else ""
    return f"{spread}{shared}{split}{layer}"


def own_name(name: str, make_up: str) -> str:
    """What layers of a name and make-up are called, apart from others of that name."""
    return f"{name}{OF_MAKE_UP}{make_up}"


class LayerCoster:
    """Prices layers for a table of plans: the sum of their operators' kernels and collectives."""

    def __init__(self, job: Job, table: PlanTable) -> None:
        self.job = job
        self.table = table
        self.operators = OperatorKernels(job, table)

    def cost(self, layer: Layer) -> LayerCost:
        """Sum a layer's operators."""
        total = self._sum(self.kernels(layer, layer.operators))
        shown = self._shown(total)
        self._again(layer, total, shown)
        self._graphed(layer, total)
        return self._measured(layer, total.showing(shown))

    def _shown(self, cost: LayerCost) -> Array | float:
        """Share of the layer's exchanges of tokens with experts that no compute hides."""
        used, device = self.job.software, self.job.device
        hidden = used.expert_hidden(device.id)
        if hidden == 0.0:
            return 1.0
        return cost.shown(hidden, held_share(used.expert_dispatcher, device.sm_count))

    def kernels(self, layer: Layer, operators: Iterable[Operator]) -> Iterator[Kernels | Exchange]:
        """What some of a layer's operators run."""
        how = quantization_of(self.job, layer, self.table.precision)
        for op in operators:
            yield from self.operators.of(op, how)

    def repeated(self, layer: Layer) -> Iterator[Kernels | Exchange]:
        """What the operators run whose forward the plan repeats by name (`recomputed_modules.py`).

        Their backward is among it; nobody repeats that.
        """
        names = self.table.common.recompute_modules
        region = self.job.software.recompute_region
        yield from self.kernels(layer, repeated(layer, names, region=region))
        if "moe_act" in names and layer.experts is not None:
            how = quantization_of(self.job, layer, self.table.precision)
            yield expert_activation(self.job, self.table, layer.experts, how)

    def _sum(self, parts: Iterable[Kernels | Exchange]) -> LayerCost:
        total = LayerCost.zero(len(self.table))
        for part in parts:
            total.add(part)
        return total

    def _graphed(self, layer: Layer, to: LayerCost) -> None:
        """Launches that CUDA graphs spare the host: of whole parts; experts know their own."""
        graphs = self.job.software.captured
        if not graphs:
            return
        alone = self._sum(self.kernels(layer, launched(layer, graphs)))
        to.forward.launches = alone.forward.launches
        to.backward.launches = alone.backward.launches

    def _again(self, layer: Layer, to: LayerCost, shown: Array | float) -> None:
        """The forward of what the plan repeats by name."""
        if not self.table.common.recompute_modules:
            return
        alone = self._sum(self.repeated(layer)).showing(shown)
        to.modules.add(alone.forward.kernels, alone.forward.launches)
        to.modules.exposed = to.modules.exposed + alone.forward.exposed

    def _measured(self, layer: Layer, cost: LayerCost) -> LayerCost:
        """The layer as a calibration found whole ones, and recorded steps, to take."""
        if not self.job.device.residuals:
            return self._recorded(cost)
        forward = self._factor(layer, "_forward", cost.forward.seconds)
        backward = self._factor(layer, "_backward", cost.backward.seconds)
        scaled = cost.scaled(forward, backward)
        waits = (
            self._factor(layer, f"{WAITED}{way}", modelled.exposed)
            for way, modelled in (("_forward", cost.forward), ("_backward", cost.backward))
        )
        passes = zip(waits, (scaled.forward, scaled.backward), strict=True)
        ahead, behind = (whole.waiting(whole.exposed * share) for share, whole in passes)
        return self._recorded(replace(scaled, forward=ahead, backward=behind))

    def _recorded(self, cost: LayerCost) -> LayerCost:
        """The layer with the factors of recorded steps; as it is where there are none."""
        device = self.job.device
        if not device.steps:
            return cost
        forward = np.asarray(step_factor(device, self.table, "forward"))
        return cost.scaled(forward, np.asarray(step_factor(device, self.table, "backward")))

    def _factor(self, layer: Layer, behind: str, seconds: Array) -> Array:
        """Measured over modelled times of such layers, (B,): of a plan's own way to split them.

        Those of the layer's own make-up, where any were timed, go before all of its name.
        """
        residuals, factor = self.job.device.residuals, np.ones(len(self.table))
        names = own_name(layer.name, layer.make_up), layer.name
        for prefix, rows in self._splits():
            kinds = (f"{prefix}{name}{behind}" for name in names)
            kind = next((kind for kind in kinds if kind in residuals), None)
            if kind is not None:
                factor = np.where(rows, measured_factor(residuals, kind, seconds), factor)
        return factor

    def _splits(self) -> Iterator[tuple[str, Flags]]:
        """What kinds begin with, the nearest to a plan last, and whose plans' they are."""
        table = self.table
        shared, spread = table.cp > 1, table.ep * table.etp > 1
        split = (SPLIT, table.tp > 1), (SEQUENCE, table.sequence_parallel)
        yield from (("", table.tp > 0), *split)
        sharing = (
            (CONTEXT, shared),
            (DISPATCHED, spread & ~shared),
            (DISPATCHED + CONTEXT, spread & shared),
        )
        for before, rows in sharing:
            yield before, rows & (table.tp == 1)
            yield from ((before + prefix, rows & tensor) for prefix, tensor in split)


def recomputes_layers(table: PlanTable) -> bool:
    """Whether any of the plans recomputes a number of each stage's layers."""
    return bool((table.recompute_layers != 0).any())


def repeated_more(forward: Pass, repeated: Pass, table: PlanTable) -> Pass:
    """What repeating a whole layer takes beyond what plans repeat of the others, (B,).

        stage    | layer 0   layer 1   layer 2   layer 3 |      recompute_layers: 2
        keeps    | input     input     all       all     |
        repeats  | all       all       nothing   nothing |

    The layers behind the first `recompute_layers` do what the plan's `recompute` says. With as many
    as the stage has it is full recomputation, layer by layer.

    Source: Megatron-Core, `--recompute-method block`: "recompute the input activations of only a
    set number of individual Transformer layers per pipeline stage and do the rest without
    recomputing".
    """
    if not recomputes_layers(table):
        return Pass.zero(len(table))
    more = forward.plus(repeated, -1.0)
    return Pass(
        kernels=np.maximum(more.kernels, 0.0),
        exposed=np.maximum(more.exposed, 0.0),
        launches=np.maximum(more.launches, 0.0),
    )


def dropped_bytes(software: Software, layer: Layer, kept: Array, table: PlanTable) -> Array:
    """Bytes that a layer keeps less where it keeps its input alone, (B,).

    `kept` (B,) is what the others keep, beside what eager PyTorch composes.
    """
    if not recomputes_layers(table):
        return np.zeros(len(table))
    composed = composed_kept(layer, table, software) if software.eager else 0.0
    return np.asarray(kept + composed - border_bytes(table, layer.inputs))
