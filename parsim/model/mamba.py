"""Mamba-2 mixers as operators, which hybrids have in place of attention."""

from __future__ import annotations

from dataclasses import replace

from parsim.model.operators import Operator, Region, Split
from parsim.model.spec import TransformerSpec
from parsim.model.transformer_operators import elementwise, norm, product, residual

MAMBA_FORWARD, MAMBA_BACKWARD, MAMBA_SAVED = 17.0, 48.0, 5.0
"""Values moved and kept per token and inner width of a Mamba-2 mixer between its projections, with
chunks of 128 tokens, whose states in fp32 are 2 values. Forward: convolution 3, states of chunks
3.25, passing them on 3, products inside chunks 1, scan 3.75, gated norm 3. Backward: the same again
without scan and norm 10.25, gated norm 6, gradients of states 3.25, of passing them on 7, of values
5, of both sides of the states 5, of products inside chunks 4, of decays 2.5, convolution 4.5. Kept:
what the projection made (2.5), what the convolution made (1.5), the scan's output (1)."""

CONVOLUTION = 4
"""Tokens that the mixer's convolution sees."""


def mamba(spec: TransformerSpec) -> tuple[Operator, ...]:
    """A Mamba-2 mixer: a projection to gate, values, both sides of the states, and time steps.

    Source: Dao and Gu 2024 (arXiv:2405.21060), section 8; kernels of state-spaces/mamba, whose
    arithmetic (some 4.7 MFLOP a token, a tenth of the projections') hides under their traffic.
    Leaves out: that arithmetic, in model FLOPs too.
    """
    h, inner = spec.hidden_size, spec.mamba_heads * spec.mamba_head_dim
    convolved = inner + 2 * spec.mamba_groups * spec.mamba_state
    parameters = convolved * (CONVOLUTION + 1) + 3 * spec.mamba_heads + inner
    mixer = elementwise(
        spec,
        "scan",
        MAMBA_FORWARD,
        MAMBA_BACKWARD,
        width=inner,
        region=Region.TENSOR,
        saved=MAMBA_SAVED,
        launches=(7, 14),
    )
    outputs = inner + convolved + spec.mamba_heads
    return (
        norm(spec, "mamba_norm"),
        product(spec, "mamba_in", h, outputs, Split.COLUMN),
        replace(mixer, repeated_parameters=parameters),
        product(spec, "mamba_out", inner, h, Split.ROW),
        residual(spec, "mamba_residual", False),
    )
