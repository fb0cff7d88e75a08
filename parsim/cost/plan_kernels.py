"""The kernels of one plan's step one by one: kind, shape, seconds, and how often a rank runs each.

The step's price (cost/layers.py) is their sum; here they stay apart, for whoever asks which of them
carry the step: what a calibration should measure, and how much of a step it did measure.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from parsim.cost.attention import FLASH_BACKWARD, attention_times
from parsim.cost.context import on_ring, slowest_share
from parsim.cost.job import Job
from parsim.cost.kernels import flash_attention_time, gemm_time, memory_time
from parsim.cost.layers import FORWARD_SHARE, LayerCoster
from parsim.cost.quantized import cast_time, product_time, quantization_of, weight_cast_time
from parsim.cost.stages import even_cut, layer_counts, per_rank, stage_experts, stage_parameters
from parsim.model.operators import (
    Attention,
    Elementwise,
    Experts,
    Layer,
    Linear,
    Lookup,
    Loss,
    Operator,
    Region,
    Split,
)
from parsim.plan import Plan, PlanTable, Recompute
from parsim.plan.record import precision

GEMM, FORWARD, BACKWARD = "gemm", "attention_forward", "attention_backward"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanKernel:
    """One shape of a kind.

    `where` are the coordinates of the kind's residuals: m, n, k; executed FLOPs and sequence
    length; bytes. `seconds` is one run, `count` how many runs a step has, mean over the pipeline's
    ranks.
    """

    kind: str
    where: tuple[float, ...]
    seconds: float
    count: float

    @property
    def weight(self) -> float:
        """Seconds of a step."""
        return self.seconds * self.count


def plan_kernels(job: Job, plan: Plan) -> tuple[PlanKernel, ...]:
    """Every distinct kernel of a step.

    Sum over layers of micro-batches x runs x seconds / pp; backward runs what the plan recomputes
    once more.

    Source: the operators' shapes as in cost/layers.py and cost/attention.py; the sum is tested to
    be the layers' seconds.
    Leaves out: collectives, and the copies around sharded ones.
    """
    found: dict[tuple[object, ...], PlanKernel] = {}
    for one in _all(_Pricer(job, plan)):
        key = one.kind, one.where, one.seconds
        before = found[key].count if key in found else 0.0
        found[key] = PlanKernel(
            kind=one.kind, where=one.where, seconds=one.seconds, count=before + one.count
        )
    return tuple(found.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    """How often a pass of a layer's parts runs in a step, mean over pipeline ranks."""

    backward: float
    products: float
    core: float
    rest: float


class _Pricer:
    """Prices the operators of one plan."""

    def __init__(self, job: Job, plan: Plan) -> None:
        self.job, self.plan = job, plan
        self.numbers = precision(plan.precision)
        self.table = PlanTable.of([plan])
        self.tokens = plan.microbatch_size * job.model.seq_len / plan.cp

    def runs(self, layers: float, *, repeated: bool) -> _Run:
        """Of so many equal layers; embedding and head are not recomputed."""
        once = layers * self.plan.num_microbatches / self.plan.pp
        again = self.plan.recompute if repeated else Recompute.NONE
        full = again is Recompute.FULL
        half = again is Recompute.SELECTIVE and self.job.software.selective == "half-products"
        core = again is Recompute.SELECTIVE and not half
        return _Run(
            backward=once,
            products=once * (1.0 + full + 0.5 * half),
            core=once * (1.0 + full + core),
            rest=once * (1.0 + full + half),
        )

    def product(self, layer: Layer, count: float, m: float, n: float, k: float,
                extra: float = 0.0) -> PlanKernel:  # fmt: skip
        """One matrix product, in the precision of its layer."""
        how = quantization_of(self.job.model, layer, self.numbers)
        m_, n_, k_ = (np.asarray(x, dtype=np.float64) for x in (m, n, k))
        seconds = product_time(self.job.device, self.numbers, how, m=m_, n=n_, k=k_,
                               extra_bytes=extra)  # fmt: skip
        return _kernel(GEMM, (m, n, k), seconds, count)

    def casts(self, layer: Layer, runs: _Run, m: float, n: float, k: float) -> Iterator[PlanKernel]:
        """Quantising the input, the output's gradient, and weights as they are gathered."""
        how = quantization_of(self.job.model, layer, self.numbers)
        if how is None:
            return
        weight = weight_cast_time(self.job, how, self.table, np.asarray(n * k))
        for count, values in ((runs.rest, m * k), (runs.backward, m * n)):
            seconds, _ = cast_time(self.job.device, how, np.asarray(values))
            yield _kernel("cast", (values,), seconds, count)
            yield _kernel("cast", (n * k,), np.max(weight), count)

    def moved(self, count: float, size: float, launches: float, kind: str) -> PlanKernel:
        """One memory-bound kernel."""
        seconds = memory_time(self.job.device, size, launches, kind)
        return _kernel(kind, (size,), seconds, count)


def _kernel(kind: str, where: tuple[float, ...], seconds: object, count: float) -> PlanKernel:
    value = float(np.asarray(seconds, dtype=np.float64))
    return PlanKernel(kind=kind, where=tuple(map(float, where)), seconds=value, count=count)


def _all(price: _Pricer) -> Iterator[PlanKernel]:
    model = price.job.model
    for layer in model.kinds:
        number = sum(one is layer for one in model.layers)
        yield from _layer(price, layer, price.runs(number, repeated=True))
    yield from _layer(price, model.embedding, price.runs(1, repeated=False))
    yield from _layer(price, model.head, price.runs(1, repeated=False))
    yield from _optimizer(price)


def _layer(price: _Pricer, layer: Layer, runs: _Run) -> Iterator[PlanKernel]:
    for op in layer.operators:
        yield from (
            one for one in _operator(price, layer, op, runs) if one.count > 0 and one.seconds > 0
        )


def _operator(price: _Pricer, layer: Layer, op: Operator, runs: _Run) -> Iterator[PlanKernel]:
    if isinstance(op, Linear):
        yield from _linear(price, layer, op, runs)
    elif isinstance(op, Attention):
        yield from (_flash if op.fused else _unfused)(price, op, runs)
    elif isinstance(op, Elementwise):
        yield from _elementwise(price, op, runs)
    elif isinstance(op, Lookup):
        yield from _lookup(price, op, runs)
    elif isinstance(op, Loss):
        yield from _loss(price, op, runs)
    elif isinstance(op, Experts):
        yield from _experts(price, layer, op, runs)


def _linear(price: _Pricer, layer: Layer, op: Linear, runs: _Run) -> Iterator[PlanKernel]:
    plan, software = price.plan, price.job.software
    m = float(plan.microbatch_size) if op.per_sequence else price.tokens
    m /= plan.tp if op.on_sequence and plan.sequence_parallel else 1
    n = op.outputs / (plan.tp if op.split is Split.COLUMN else 1)
    k = op.inputs / (plan.tp if op.split is Split.ROW else 1)
    wide, fused = plan.gradient_precision == "fp32", software.fused_gradient_accumulation
    extra = fused * (8.0 if wide else 4.0) * n * k
    yield price.product(layer, runs.products, m, n, k)
    yield price.product(layer, runs.backward, m, k, n)
    yield price.product(layer, runs.backward, k, n, m, extra)
    yield from price.casts(layer, runs, m, n, k)
    if not fused:
        yield price.moved(runs.backward, (10.0 if wide else 6.0) * n * k, 1, "accumulate")


def _flash(price: _Pricer, op: Attention, runs: _Run) -> Iterator[PlanKernel]:
    """The kernels of a ring's blocks (one without a ring), and what adds their results up."""
    job, plan, length = price.job, price.plan, float(price.job.model.seq_len)
    flops = 4.0 * price.tokens * length * op.heads * op.mean_dim / plan.tp
    flops *= op.seen(job.model.seq_len) * float(np.max(slowest_share(job, price.table, op)))
    blocks = float(plan.cp if on_ring(job) else 1)
    core, speeds = (
        attention_times(job, price.table, op),
        job.software.attention_speed(job.device.id),
    )
    for kind, count, factor, speed, whole in (
        (FORWARD, runs.core, 1.0, speeds[0], core.forward),
        (BACKWARD, runs.backward, FLASH_BACKWARD, speeds[1], core.backward),
    ):
        where = factor * flops / blocks, length / blocks
        seconds = flash_attention_time(
            job.device, price.numbers.compute, flops=where[0], seq_len=where[1],
            backward=kind == BACKWARD, efficiency=speed, head_dim=op.head_dim,
        )  # fmt: skip
        yield _kernel(kind, where, seconds, count * blocks)
        if blocks > 1:
            rest = float(whole[0]) - blocks * float(np.asarray(seconds))
            yield _kernel("merge", (flops,), rest, count)


def _unfused(price: _Pricer, op: Attention, runs: _Run) -> Iterator[PlanKernel]:
    s, d, value = float(price.job.model.seq_len), float(op.head_dim), price.numbers.activation
    rows, batch = s / price.plan.cp, price.plan.microbatch_size * op.heads / price.plan.tp
    for n, k in ((s, d), (float(op.output_dim), s)):
        seconds = gemm_time(price.job.device, price.numbers.compute, m=rows, n=n, k=k,
                            batch=batch, value=value)  # fmt: skip
        yield _kernel(GEMM, (rows * batch, n, k), seconds, runs.core + 2.0 * runs.backward)
    scores, drop = batch * rows * s * price.job.software.scores_traffic, 1 if op.dropout else 0
    ahead, behind = (scores * (x * value + drop * (2 * value + 1)) for x in (2, 3))
    yield price.moved(runs.core, ahead, 1 + drop, "")
    yield price.moved(runs.backward, behind, 1 + drop, "")


def _elementwise(price: _Pricer, op: Elementwise, runs: _Run) -> Iterator[PlanKernel]:
    plan, value = price.plan, price.numbers.activation
    split = plan.tp if op.region is Region.TENSOR or plan.sequence_parallel else 1
    count = price.tokens * op.width / split * price.job.software.traffic
    ahead = count * (op.forward * value + op.forward_mask)
    behind = count * (op.backward * value + op.backward_mask)
    yield price.moved(runs.rest, ahead, op.launches[0], f"{op.kind}_forward")
    yield price.moved(runs.backward, behind, op.launches[1], f"{op.kind}_backward")


def _lookup(price: _Pricer, op: Lookup, runs: _Run) -> Iterator[PlanKernel]:
    tables, software = 1 + (op.positions > 0) + (op.token_types > 0), price.job.software
    moved = price.tokens * op.width * price.numbers.activation * 2.0 * tables * software.traffic
    yield price.moved(runs.rest, moved, tables, "lookup_forward")
    yield price.moved(runs.backward, 1.5 * moved, tables, "lookup_backward")
    dense = op.vocab_size * op.width / price.plan.tp * software.lookup_gradient
    yield price.moved(runs.backward, dense, 0, "accumulate")


def _loss(price: _Pricer, op: Loss, runs: _Run) -> Iterator[PlanKernel]:
    moved = price.tokens * op.vocab_size / price.plan.tp * price.job.software.loss_bytes
    yield price.moved(runs.rest, FORWARD_SHARE * moved, 4, "loss_forward")
    yield price.moved(runs.backward, (1.0 - FORWARD_SHARE) * moved, 2, "loss_backward")


def _experts(price: _Pricer, layer: Layer, op: Experts, runs: _Run) -> Iterator[PlanKernel]:
    """All of a layer's experts as one kernel in either direction: no calibration measures them."""
    cost = LayerCoster(price.job, price.table).cost(Layer(name=layer.name, operators=(op,)))
    rows = price.tokens * op.top_k, float(op.width), float(op.ffn_hidden_size)
    yield _kernel("experts_forward", rows, cost.forward.kernels[0], runs.rest)
    yield _kernel("experts_backward", rows, cost.backward.kernels[0], runs.backward)


def _optimizer(price: _Pricer) -> Iterator[PlanKernel]:
    """The update of each pipeline rank's parameters."""
    plan, job = price.plan, price.job
    cut = plan.stage_layers or even_cut(job.model.num_layers, plan.num_stages)
    table = PlanTable.of([plan])
    counts = layer_counts(job.model, cut)
    experts = stage_experts(job.model, table, counts)
    shared = stage_parameters(job.model, table, counts) - experts
    shards = float(table.shards[0])
    by_rank = per_rank(shared, plan.pp)[:, 0], per_rank(experts, plan.pp)[:, 0]
    for own, routed in zip(*by_rank, strict=True):
        held = float(own) / shards + float(routed) / float(table.expert_shards[0])
        size = held * job.software.optimizer_bytes
        yield price.moved(1.0 / plan.pp, size, 1, "optimizer")
