"""What is calibrated: layers of models of several sizes, and the kernels that they are made of."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from executor.calibration.cases import kinds
from parsim.cost.data.update import PASS_LAUNCHES
from parsim.cost.layer.attention import FLASH_BACKWARD
from parsim.cost.layer.operator_kernels import FORWARD_SHARE
from parsim.cost.software import Software
from parsim.model.model import Model
from parsim.model.operators import Attention, Elementwise, Linear, Loss, Region, Split
from parsim.model.transformer import TransformerSpec, build_transformer
from parsim.plan import Plan, precision

CHAIN = 4
"""Layers of a workload's model: enough that one layer's weights push another's out of a cache."""


class TimedCase(NamedTuple):
    """One kernel to time: its kind and shape as the cost functions name them, and how to run it.

    `shape` holds a GEMM's m, n, k; attention's executed `flops` and `seq_len`; else the `bytes` and
    `launches` of a memory-bound kernel. `sizes` is what running it needs beyond that, see
    `executor/calibration/timing/operators.py`: of a GEMM which product of a linear map it is. Of
    equal shapes the first that a plan has is timed.
    """

    kind: str
    shape: Mapping[str, float]
    sizes: tuple[int, ...] = ()

    @property
    def key(self) -> tuple[object, ...]:
        """Equal for cases that need be measured once."""
        return self.kind, tuple(self.shape.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A model of few layers, and the micro-batch and split that a plan gives it.

    `blocks_alone`: its embedding and head are another workload's too, and are timed there.
    """

    spec: TransformerSpec
    plan: Plan
    blocks_alone: bool = False

    @property
    def model(self) -> Model:
        """The spec as the cost functions price it."""
        return build_transformer(self.spec)

    @property
    def tokens(self) -> int:
        """Tokens of one micro-batch."""
        return self.plan.microbatch_size * self.spec.seq_len


def distinct_cases(workloads: Iterable[Workload], software: Software) -> Iterator[TimedCase]:
    """The kernels of all workloads, each shape once, and the sizes that have no layer."""
    cases: dict[tuple[object, ...], TimedCase] = {}
    for workload in (each for each in workloads if each.plan.cp == 1):  # a rank's own tokens
        for case in kernel_cases(workload, software):
            cases.setdefault(case.key, case)
    yield from cases.values()


def kernel_cases(workload: Workload, software: Software) -> Iterator[TimedCase]:
    """GEMMs, attention and memory-bound kernels of one workload's embedding, layer and head."""
    model = workload.model
    layers = (*model.before, model.kinds[0], *model.behind)
    for op in (op for layer in layers for op in layer.operators):
        if isinstance(op, Linear):
            yield from _products(workload, op)
        elif isinstance(op, Attention) and op.fused and not op.shaped:  # whole layers tell of those
            batch, tp = workload.plan.microbatch_size, workload.plan.tp
            sizes = (batch, op.heads // tp, workload.spec.seq_len, op.head_dim)
            yield from attention_cases(*sizes, causal=op.causal)
        elif isinstance(op, Elementwise):
            yield from _elementwise(workload, op, software)
        elif isinstance(op, Loss):
            yield from _loss(workload, op, software)


def _products(workload: Workload, op: Linear) -> Iterator[TimedCase]:
    plan = workload.plan
    m = plan.microbatch_size if op.per_sample else workload.tokens
    n = op.outputs // (plan.tp if op.split is Split.COLUMN else 1)
    k = op.inputs // (plan.tp if op.split is Split.ROW else 1)
    yield from products(m, n, k)
    yield TimedCase(kinds.ACCUMULATE, {"bytes": 10.0 * n * k, "launches": 1}, (n * k,))


def products(m: int, n: int, k: int) -> Iterator[TimedCase]:
    """The three products of a linear map from k values to n, of m rows."""
    sides = {
        kinds.OUTPUT: (m, n, k),
        kinds.INPUT_GRADIENT: (m, k, n),
        kinds.WEIGHT_GRADIENT: (k, n, m),
    }
    for which, (rows, columns, inner) in sides.items():
        yield TimedCase(kinds.GEMM, {"m": rows, "n": columns, "k": inner}, (which,))


def attention_cases(
    batch: int, heads: int, length: int, size: int, *, causal: bool
) -> Iterator[TimedCase]:
    """Forward and backward of one fused attention, with the FLOPs that are really executed."""
    flops = 4.0 * batch * length**2 * heads * size * (0.5 if causal else 1.0)
    for kind, factor in ((kinds.FORWARD, 1.0), (kinds.BACKWARD, FLASH_BACKWARD)):
        shape = {"flops": factor * flops, "seq_len": length}
        yield TimedCase(kind, shape, (batch, heads, size, int(causal)))


def _elementwise(workload: Workload, op: Elementwise, software: Software) -> Iterator[TimedCase]:
    plan = workload.plan
    split = plan.tp if op.region is Region.TENSOR or plan.sequence_parallel else 1
    count = workload.tokens * op.width / split
    value = precision(plan.precision).activation
    moved = (
        count * (op.forward * value + op.mask),
        count * (op.backward * value + op.mask),
    )
    sizes = (workload.tokens, op.width // split, int(workload.spec.rms_norm))
    for name, size, launches in zip(("forward", "backward"), moved, op.launches, strict=True):
        if not size:
            continue  # nothing to time
        shape = {"bytes": size * software.traffic, "launches": launches}
        yield TimedCase(f"{op.kind}_{name}", shape, sizes)


def _loss(workload: Workload, op: Loss, software: Software) -> Iterator[TimedCase]:
    if workload.plan.tp > 1:
        return
    moved = workload.tokens * op.vocab_size * software.loss_bytes
    shares = (FORWARD_SHARE, 1.0 - FORWARD_SHARE)
    for kind, share, launches in zip(kinds.LOSS, shares, (4, 2), strict=True):
        shape = {"bytes": share * moved, "launches": launches}
        yield TimedCase(kind, shape, (workload.tokens, op.vocab_size))


def memory_cases(small: bool, value: int, software: Software) -> Iterator[TimedCase]:
    """A launch, and by size copies and what a step does once with all gradients."""
    yield TimedCase(kinds.LAUNCH, {"bytes": 3.0 * value, "launches": 2}, (1,))
    for count in (2**14, 2**18, 2**22) if small else (2**20, 2**24, 2**27):
        yield TimedCase(kinds.COPY, {"bytes": 2.0 * value * count, "launches": 0}, (count,))
    for count in (2**18, 2**20, 2**22, 2**24) if small else (2**22, 2**26, 2**28):
        for kind, each in bytes_of_updates(software).items():
            yield update_case(kind, each * count, count)


def bytes_of_updates(software: Software) -> dict[str, float]:
    """Bytes that each of UPDATES moves for a value, where they are not among another's."""
    each = (software.norm_bytes, software.clip_bytes, software.optimizer_bytes)
    return {kind: moved for kind, moved in zip(kinds.UPDATES, each, strict=True) if moved}


def update_case(kind: str, moved: float, count: int) -> TimedCase:
    """One of UPDATES over so many values, which moves so many bytes."""
    return TimedCase(kind, {"bytes": moved, "launches": PASS_LAUNCHES[kind]}, (count,))
