"""Matrix products of layers in 8 bit or less: which ones, at what rate, and the casts around them.

    forward    Y  = q(X) q(W)          X quantised here, W once a step (or after each gather)
    backward   dX = q(dY) q(W)^T       dY quantised here
               dW = q(X)^T q(dY)       both already are

Embedding and loss stay in 16 bit, attention core and head unless the stack says more, and every
product writes 16 bit.

Source: FP8 formats (arXiv:2209.05433), Transformer Engine and torchao for what their recipes
quantise; OCP microscaling formats (arXiv:2310.10537) for block scales.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from parsim.arrays import Array, Num
from parsim.cluster.hardware import Device
from parsim.cost.job import Job
from parsim.cost.kernel.kernels import CONTIGUOUS, Side, gemm_time, memory_time
from parsim.model.layer import Layer
from parsim.model.model import Model
from parsim.model.operators import Linear
from parsim.plan import PlanTable
from parsim.plan.precision import DELAYED, TENSOR_SCALES, Precision, Quantization


def recipe_of(job: Job, used: Precision) -> Quantization | None:
    """How products are quantised: 8 bit with one scale a tensor takes those of the stack."""
    how = used.quantization
    return TENSOR_SCALES[job.software.fp8_scales] if how == DELAYED else how


def quantization_of(job: Job, layer: Layer, used: Precision) -> Quantization | None:
    """How a layer's products are quantised: those of outer layers (embedding, head) never are."""
    return None if layer.outer else recipe_of(job, used)


Sides = tuple[Array, Array, Array]
"""Rows, columns and depth (B,) of a matrix product: m, n, k."""


def product_time(
    device: Device,
    used: Precision,
    how: Quantization | None,
    sides: Sides,
    extra_bytes: Num = 0.0,
    contiguous: tuple[Side, ...] = CONTIGUOUS,
) -> Array:
    """Seconds of one product of a layer, without casts.

    Quantised: operands of `operand` bytes, a result of 16 bit, at `rate` of what the device's
    products of that precision reach.

    Source: `gemm_time`; both shares are fitted to steps.
    Leaves out: other tiles and clocks than 16-bit products have.
    """
    m, n, k = sides
    on, precision, value = operands(device, used, how)
    if how is not None:
        extra_bytes = extra_bytes + (used.activation - how.operand) * m * n
    return gemm_time(
        on,
        precision,
        m=m,
        n=n,
        k=k,
        value=value,
        extra_bytes=extra_bytes,
        contiguous=contiguous,
    )


def operands(
    device: Device, used: Precision, how: Quantization | None
) -> tuple[Device, str, float]:
    """The device with the peak that products are measured against, its name, an operand's bytes."""
    if how is None:
        return device, used.compute, used.activation
    peaks = {**device.peak_flops, how.peak: device.peak(how.peak) * how.rate}
    return replace(device, peak_flops=peaks), how.peak, how.operand


READ = 2.0
"""Bytes of a 16-bit value that a cast reads, where it is a kernel of its own."""


SPARED = 1.0
"""Bytes that a norm writes less of a value in 8 bit."""


def cast_bytes(job: Job, how: Quantization, *, trained: bool = True, normed: bool = False) -> float:
    """Bytes that quantising one activation or gradient reads and writes.

    `moved`, and `beside` for the other orientation, which only the gradient of a `trained` weight
    needs, and of one scale a tensor only a device whose products take one orientation. Where the
    stack folds a cast into what makes the values, less the 2 that it reads. `normed` values come
    from a norm: with a scale that is `known` it writes them itself, and what is left is the turned
    copy less the byte that the norm spares (0 at least).

    Source: what each recipe's kernels read and write, beside the recipes in `plan/precision.py`;
    which stacks fuse them, in `software.yaml`; Transformer Engine, module/linear.py (1.9 and 2.18):
    no other orientation without `weight.requires_grad`.
    Leaves out: that attention's output, which no compiler makes, is read all the same; norms
    whose output is gathered in 16 bit or returned.
    """
    turns = how.turned > 0.0
    other = trained and not (turns and takes_either_way(job.device))
    if job.software.fused_casts:
        return how.moved - READ + how.beside * (other and not turns)
    if normed and how.known:
        return max(how.turned * other - SPARED, 0.0)
    return how.moved + how.beside * other


def cast_time(
    job: Job,
    how: Quantization | None,
    values: Array,
    *,
    trained: bool = True,
    normed: bool = False,
) -> tuple[Array, int]:
    """Seconds and launches of quantising activations or gradients: `cast_bytes` of each."""
    if how is None:
        return np.zeros_like(values), 0
    moved = cast_bytes(job, how, trained=trained, normed=normed)
    return memory_time(job.device, moved * values), 1


def takes_either_way(device: Device) -> bool:
    """Whether 8-bit products take operands in either orientation.

    Devices with block-scaled formats do.

    Source: Transformer Engine, `is_non_tn_fp8_gemm_supported`: Blackwell, not Hopper or Ada.
    Leaves out: that those formats scale each orientation by itself, which their casts hold.
    """
    return "mxfp8" in device.peak_flops


def gathered_cast_time(
    job: Job,
    how: Quantization | None,
    values: Array,
    ranks: Array,
    *,
    trained: bool = True,
    normed: bool = False,
) -> tuple[Array, int]:
    """Seconds and launches of quantising `values`, of which a rank has one in `ranks`, (B,) both.

    Each rank casts its own and gathers the others' cast already; where products take one
    orientation only, what came is turned, `turned` bytes a value. A recipe that gathers 16 bit
    casts all of them on every rank.

    Source: Transformer Engine, `gather_along_first_dim` of a quantised tensor.
    Leaves out: the largest value of all ranks, which a current scale of the whole tensor needs.
    """
    if how is None or not how.gathered:
        return cast_time(job, how, values, trained=trained, normed=normed)
    seconds, launches = cast_time(job, how, values / ranks, trained=trained, normed=normed)
    if not (how.turned and trained) or takes_either_way(job.device):
        return seconds, launches
    parts, _ = cast_time(job, how, values / ranks, trained=False, normed=normed)
    turned = memory_time(job.device, how.turned * values, 0)
    return np.where(ranks > 1, parts + turned, seconds), launches


def weight_cast_time(job: Job, how: Quantization | None, table: PlanTable, values: Array) -> Array:
    """Seconds of quantising a weight in a pass: where it has just been gathered in 16 bit, (B,).

    Elsewhere it is quantised once a step, beside the copy back of the update, which the stack's
    optimizer_bytes hold.

    Source: as `cast_time`, `moved_weight` bytes a value.
    Leaves out: copies kept from forward to backward, which spare the second cast.
    """
    if how is None or job.software.quantized_gather:
        return np.zeros(len(table))
    moved = np.where(table.zero_stage == 3, how.moved_weight * values, 0.0)
    return memory_time(job.device, moved, 0)


def gathered_size(job: Job, used: Precision) -> float:
    """Bytes of a parameter on the wire of a sharded stack, mean over the model.

    Stacks that gather weights already quantised send `operand` bytes of those of the layers'
    products, and 16 bit of the rest.

    Source: the stack's `quantized_gather`, with its reason in `software.yaml`.
    Leaves out: that the first and last stage hold more of the rest than others.
    """
    how = used.quantization
    if how is None or not job.software.quantized_gather:
        return float(used.gathered)
    share = _product_weights(job.model) / job.model.parameters
    return share * how.operand + (1.0 - share) * used.gathered


def held_size(job: Job, used: Precision) -> float:
    """Bytes of a parameter as ranks hold it between steps, mean over the model.

    Stacks that keep weights already quantised hold `operand` bytes of those of the layers'
    products where these take either orientation, and beside their transpose elsewhere, as wide as
    16 bit; `turned` tells recipes whose values need no other scales to be turned.

    Source: Transformer Engine, `Float8Tensor`, which has no transpose on Blackwell; Llama 3.1 405B
    takes 16 GB less of GB200 than of H200 under one plan (MLPerf Training 5.0).
    Leaves out: as `gathered_size`.
    """
    how = used.quantization
    if how is None or not (how.turned and job.software.quantized_gather):
        return float(used.parameter)
    if not takes_either_way(job.device):
        return float(used.parameter)
    share = _product_weights(job.model) / job.model.parameters
    return share * how.operand + (1.0 - share) * used.parameter


def _product_weights(model: Model) -> int:
    return sum(
        op.inputs * op.outputs
        for layer in model.blocks
        for op in layer.operators
        if isinstance(op, Linear)
    ) + sum(layer.expert_parameters for layer in model.blocks)
