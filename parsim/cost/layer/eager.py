"""What memory-bound operators move where a stack runs one kernel for each line of Python.

A model written in plain PyTorch launches a kernel for each operation of a norm, an activation or a
rotation; each reads and writes whole tensors. `Software.eager_values` counts them one by one, in
values of the activations' size for each value of the operator, forward and backward:

    x.to(fp32)        r 2  w 4  bytes     3 values of 16 bit
    x.pow(2)          r 4  w 4            4
    .mean(-1)         r 4                 2
    x * rsqrt(...)    r 4  w 4            4
    .to(16 bit)       r 4  w 2            3
    weight * x        r 2  w 2            2       RMS norm forward: 18

Where an operator is not counted so, its own passes count `Software.traffic` times. A stack that
fuses more is counted in the same way: batch normalisation, addition and ReLU in one kernel leave of
the addition a read of its other operand, and of ReLU nothing. A count for one precision ("relu
fp16") goes before that of all.

What backward needs of them lives until then (`Software.eager_kept`, in values beside those of a
fused kernel): of that norm the fp32 input and the normalised value instead of the input (2 more),
of SwiGLU SiLU's result (1), of GPT-2's GELU tanh's result and both factors of its last product (3).

Source: transformers, models/llama/modeling_llama.py (LlamaRMSNorm, LlamaMLP,
apply_rotary_pos_emb; v4.31) and activations.py (NewGELUActivation); PyTorch's derivatives.yaml for
what autograd runs behind each.
Leaves out: hits in the cache between neighbouring kernels; sums of bias gradients.
"""

from __future__ import annotations

import numpy as np

from parsim.arrays import Array, Flags
from parsim.cost.job import Job
from parsim.cost.software import Software
from parsim.model.operators import Elementwise
from parsim.plan.precision import FULL, Precision

DROPPED = 2.0
"""Values that a dropout of its own reads and writes beside its mask, in either direction."""

PERSISTENT = 2.25, 2.9
"""Values that a persistent batch normalisation moves for each one, forward and backward, at the
rate of the usual 3 and 5: 3 / 1.33 and 5 / 1.72 (`stays_on_chip`); counted they are 2 and 3."""
LEAST_KEPT = 100_352
"""Values of a channel from which on these kernels are known to be faster."""


def moved_values(
    stack: Software, op: Elementwise, value: float, compute: str = ""
) -> tuple[float, float]:
    """Bytes moved for each value of an operator, forward and backward, `value` bytes each.

    `compute` is the precision of products, by which a stack may fuse what it else does not.
    """
    kind, values = eager_kind(op), stack.eager_values
    counted = values.get(f"{kind} {compute}", values.get(kind))
    if counted is None:
        ahead, behind = (count * value + op.mask for count in (op.forward, op.backward))
        return ahead * stack.traffic, behind * stack.traffic
    forward, backward = (count + DROPPED * op.mask for count in counted)
    return forward * value + op.mask, backward * value + op.mask


def eager_kind(op: Elementwise) -> str:
    """The operator's kind; norms with a weight alone are RMS norms, with a bias layer norms."""
    if op.kind != "norm":
        return op.kind
    return "layer_norm" if op.repeated_parameters > op.width else "rms_norm"


def stays_on_chip(job: Job, precision: Precision, op: Elementwise, count: Array) -> Flags:
    """Whether each channel of a batch normalisation, `count` values in all, is read once, (B,).

    cuDNN's persistent kernels keep it in registers between its statistics and its result. In fp32
    and channels first, which alone are measured, they were as fast or slower with 6,272 values a
    channel and fewer.

    Source: sonots/cumo, pull request 339: 32x64x56x56 and 128x32x32x32 (100,352 and 131,072 values
    a channel) 1.33 times as fast forward and 1.72 backward, 32x256x14x14 1.00 and 0.61.
    """
    stack = job.software
    asked = stack.cudnn >= stack.persistent_norms and job.device.persistent_norms
    plain = precision.compute not in stack.channels_last and precision.activation == FULL
    if not (op.statistics and asked and plain):
        return np.zeros_like(count, dtype=bool)
    return np.asarray(count / op.statistics >= LEAST_KEPT)
