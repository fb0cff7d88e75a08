"""Precisions: bytes of each kind of value, what products run in, how 8-bit ones are quantised."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from parsim.errors import PlanError, alternatives, shown

Narrow = Literal["fp8", "mxfp8"]
"""Formats of 8 bit that attention runs in: a scale for a whole tensor, or one for 32 values."""
FULL = 4
"""Bytes of a value in fp32."""
SUMS = ("fp32", "same")
"""What gradients are summed and reduced in: 32 bits, or the precision of the parameters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantization:
    """How the matrix products of layers run in 8 bit or less; all else keeps the 16-bit precision.

    `peak` names the device peak of those products and `rate` the share of that peak's usual rate
    that the recipe's kernels reach, `divided_rate` the same where tensor-parallel ranks divide them
    (None: as `rate`). `operand` is the size of a quantised value with its share of
    the scales, `kept` that of a product's input between forward and backward. `moved` is what
    quantising one value of an activation or gradient reads and writes, `beside` what the same
    kernel writes of the other orientation, which a weight's gradient needs; `moved_weight` both for
    a weight, which is quantised once a step, or in each pass where it is gathered for the pass
    (ZeRO-3). `known` says that scales are known before the values, so that a norm writes 8 bit
    itself. `gathered` says that tensor-parallel ranks quantise their own tokens before they gather
    the others', `turned` what a kernel of its own that makes the other orientation of a quantised
    value reads and writes: only one scale a tensor allows that, and devices whose products take
    either orientation need none. `chunked` says whether products may be cut into chunks that
    run beside their collectives. `attention` names the format that attention takes where a
    stack quantises it too, `attended` is what it keeps of a query, key or value in bytes.
    """

    peak: str
    operand: float
    kept: float
    moved: float
    beside: float
    moved_weight: float
    rate: float = 1.0
    divided_rate: float | None = None
    known: bool = False
    gathered: bool = True
    turned: float = 0.0
    chunked: bool = True
    attention: Narrow = "fp8"
    attended: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Precision:
    """Bytes per parameter of each kind, and the precision that kernels run in.

    `compute` names the device peak used by matrix products. `activation` is the size of one
    activation value. `master` is 0 where the parameters themselves are the fp32 copy. `gathered`
    is the size of a parameter while it is communicated or used (autocast gathers 2 bytes of 4),
    `moment` that of a value of the optimizer's states.
    `quantization` is how the products of layers differ from that, None where they do not:
    embedding and loss always run in `compute`, attention core and head unless a stack says more
    (`quantized_attention`, `quantized_logits`).
    """

    name: str
    compute: str
    activation: int
    parameter: int
    gathered: int
    master: int
    moment: int = 4
    quantization: Quantization | None = None

    @property
    def width(self) -> float:
        """Size of what the optimizer holds over that in fp32."""
        return self.moment / FULL

    @property
    def products(self) -> str:
        """The device peak of the layers' matrix products."""
        return self.quantization.peak if self.quantization else self.compute


DELAYED = Quantization(
    peak="fp8",
    operand=1.0,
    kept=1.0,
    moved=3.0,
    beside=1.0,
    moved_weight=4.0,
    turned=2.0,
    known=True,
)
"""Transformer Engine, one scale a tensor, from the maxima of steps before: a cast reads 2 bytes and
writes 1, and 1 more of the transposed copy that Hopper's products need (`cast_transpose`); of
gathered values, or of a norm's, which the norm writes in 8 bit itself (csrc/extensions/
normalization.cpp, FULLY_FUSED), a kernel makes that copy that reads 1 and writes 1.
Weights are held in 8 bit with their transpose, 2 bytes as before, and made once a step."""

CURRENT = replace(DELAYED, moved=5.0, known=False)
"""Scales of the values themselves, tensor by tensor: as above, with a pass for the maximum (2)
before each cast (Transformer Engine, Float8CurrentScalingQuantizer; torchao's tensorwise scales).
Norms of Transformer Engine's own that find the maximum beside their output spare that pass;
cuDNN's, which Megatron-Bridge's runs of Llama take on Blackwell, do not."""

TENSOR_SCALES = {"delayed": DELAYED, "current": CURRENT}
"""What `fp8` with one scale a tensor is, by the stack's `fp8_scales`."""

ROWWISE = Quantization(
    peak="fp8",
    operand=1.0,
    kept=2.0,
    moved=5.0,
    beside=5.0,
    moved_weight=10.0,
    rate=0.97,
    divided_rate=0.46,
    gathered=False,
)
"""torchao, a scale a row: for either orientation one pass for the maxima (2) and a cast (2 + 1);
autograd keeps the 16-bit input. Tensor-parallel ranks gather 16 bit (torchtitan,
models/llama3/infra/parallelize.py). The rate is that of CUTLASS's rowwise kernel over cuBLAS with
one scale a tensor on H100, geometric mean of four shapes of 3,456 and 4,176 rows (0.91 to 1.00;
pytorch/FBGEMM pull request 2764; as fast in a linear layer, pytorch/ao pull request 2185). That
under tensor parallelism is fitted to two rows of torchtitan with 8 ranks (June 2025), which is slow
then for no reason that is written (torchtitan issue 1207)."""

MXFP8 = Quantization(
    peak="mxfp8",
    operand=33 / 32,
    kept=33 / 32,
    moved=97 / 32,
    beside=33 / 32,
    moved_weight=4.1,
    attention="mxfp8",
    attended=33 / 16,
)
"""Blackwell, a scale byte for each 32 values: one kernel reads 2 and writes both orientations.
Backward of attention takes queries and keys in both, and Transformer Engine keeps both."""

NVFP4 = Quantization(
    peak="nvfp4",
    operand=9 / 16,
    kept=9 / 16,
    moved=73 / 16,
    beside=9 / 16,
    moved_weight=5.1,
    rate=0.78,
    chunked=False,
)
"""Blackwell, 4 bits and a scale byte for each 16 values under a scale a tensor: one pass for the
tensor's maximum (2), one that reads 2 and writes both orientations. The rate is fitted to the
Megatron-Bridge rows, whose recipes of Llama keep no layers in 16 bit (bf16_with_nvfp4_mixed and
utils/precision.py, v0.3.0 to v0.6.0). Transformer Engine's user buffers take 8 and 16 bit alone
("Unsupported quantizer for Userbuffers", module/base.py of 2.18), and all recipes of
Megatron-Bridge set tp_comm_overlap to False in nvfp4 (v0.2.0 to v0.6.0)."""

MXFP4 = Quantization(
    peak="mxfp4",
    operand=17 / 32,
    kept=17 / 32,
    moved=81 / 32,
    beside=17 / 32,
    moved_weight=3.1,
    chunked=False,
)
"""CDNA 4, 4 bits and a scale byte for each 32 values, no scale of a tensor: one kernel reads 2 and
writes both orientations (Transformer Engine on ROCm, cast and transpose with a Hadamard transform,
as AMD's configurations of MLPerf Training 6.0 have it). Its rate was not fitted."""


def _whole(name: str) -> Precision:
    """Everything in 4 bytes."""
    return Precision(name=name, compute=name, activation=4, parameter=4, gathered=4, master=0)


def _mixed(name: str, compute: str = "bf16", how: Quantization | None = None) -> Precision:
    """16-bit parameters beside an fp32 master copy."""
    return Precision(
        name=name,
        compute=compute,
        activation=2,
        parameter=2,
        gathered=2,
        master=4,
        quantization=how,
    )


def _autocast(name: str, how: Quantization | None = None, compute: str = "bf16") -> Precision:
    """16-bit compute over fp32 parameters, which are their own master copy."""
    return replace(_mixed(name, compute, how), parameter=4, master=0)


def _pure(name: str, compute: str) -> Precision:
    """16 bit throughout: parameters, moments, and no master copy."""
    return replace(_mixed(name, compute), master=0, moment=2)


PRECISIONS = {
    precision.name: precision
    for precision in (
        _whole("fp32"),
        _whole("tf32"),
        _mixed("bf16"),
        _mixed("fp16", "fp16"),
        _autocast("bf16_amp"),
        _pure("bf16_pure", "bf16"),
        _autocast("fp16_amp", compute="fp16"),
        _mixed("fp8", how=DELAYED),
        _mixed("fp8_rowwise", how=ROWWISE),
        _mixed("mxfp8", how=MXFP8),
        _mixed("nvfp4", how=NVFP4),
        _mixed("mxfp4", how=MXFP4),
        _autocast("fp8_amp", DELAYED),
    )
}
"""bf16 and fp16 keep an fp32 master copy; the _amp ones are autocast over fp32 parameters, of
bf16_pure nothing but sums of gradients is ever in fp32."""


def precision(name: str) -> Precision:
    """Look up a precision.

    Raises:
        PlanError: unknown name.
    """
    if name not in PRECISIONS:
        raise PlanError(f"precision='{shown(name)}' is unknown{alternatives(name, PRECISIONS)}")
    return PRECISIONS[name]
