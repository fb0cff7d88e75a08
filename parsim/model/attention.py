"""What mixes a transformer's tokens, as operators: attention of several kinds, or Mamba-2."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from parsim.model.operators import Attention, Elementwise, Linear, Operator, Region, Split
from parsim.model.shared_heads import SharedHeads
from parsim.model.spec import TransformerSpec
from parsim.model.transformer_operators import elementwise, joined, norm, product, residual


def attention(spec: TransformerSpec, *, near: bool, turns: bool = True) -> tuple[Operator, ...]:
    """Attention over all tokens, or, where `near`, over those of a window.

    A layer of a model with rotary positions may leave them out, `turns` says.
    """
    if spec.kv_lora_rank:
        return _latent_attention(spec, near=near)
    h, q_width = spec.hidden_size, spec.num_attention_heads * spec.head_dim
    keys = SharedHeads(
        count=spec.num_key_value_heads, width=spec.num_key_value_heads * spec.head_dim
    )
    normed = (norm(spec, "attention_norm"),)
    return (
        *(() if spec.post_norm else normed),
        _queries_keys_values(spec, q_width, keys),
        *_of_queries_and_keys(spec, q_width, keys, turns=turns),
        *_transposes(spec),
        _core(spec, spec.num_key_value_heads, near=near),
        product(spec, "projection", q_width, h, Split.ROW, bias=spec.projection_bias),
        *joined(spec, "attention", spec.projection_bias),
        *(normed if spec.post_norm else ()),
    )


def _queries_keys_values(spec: TransformerSpec, q_width: int, keys: SharedHeads) -> Linear:
    """The product that makes queries, keys and values, of which the latter may be shared."""
    width = q_width + 2 * keys.width
    qkv = product(spec, "qkv", spec.hidden_size, width, Split.COLUMN, bias=spec.qkv_bias)
    return replace(qkv, shared=replace(keys, width=2 * keys.width), matrices=3)


def _transposes(spec: TransformerSpec) -> tuple[Operator, ...]:
    """Copies that bring (batch, head) outermost, which an unfused kernel wants, and back.

    Two tensors of width h are copied, the others are views (8 bytes per h in the traffic count of
    the 22B layer).
    """
    if spec.fused_attention:
        return ()
    return (_heads_apart(spec, "transpose", 2 * spec.hidden_size, launches=(2, 2)),)


def _core(spec: TransformerSpec, kv_heads: int, *, near: bool) -> Attention:
    """Both products of the scores, over all tokens or those of a window."""
    return Attention(
        tokens=spec.seq_len,
        heads=spec.num_attention_heads,
        kv_heads=kv_heads,
        head_dim=spec.head_dim,
        causal=spec.causal,
        fused=spec.fused_attention,
        dropout=spec.dropout,
        window=spec.window if near else None,
        sample=spec.sample_length or None,
        shaped=spec.alibi or spec.attention_cap > 0,
    )


def _of_queries_and_keys(
    spec: TransformerSpec, q_width: int, keys: SharedHeads, *, turns: bool
) -> Iterator[Operator]:
    """Norm, rotation and scale of queries and keys before their product, as the model has them."""
    width = q_width + keys.width
    if spec.qk_norm:
        yield replace(_qk_norm(spec, width), shared=keys)
    if spec.rope and turns:
        yield replace(_rotation(spec, width), shared=keys)
    if spec.query_scale != 1.0:
        yield _heads_apart(spec, "query_scale", q_width)


YARN = (12.0, 14.0)
"""Values that an unfused rotation moves, forward and backward: two products with sines and cosines
(2 each), the turned half (half 1 + 1, whole 1 + 1), their sum (3) and a copy (2); backward the same
products, the turn back, and the sum of both gradients."""


def _rotation(spec: TransformerSpec, width: int) -> Elementwise:
    """Rotary positions: one fused kernel, or a dozen where YaRN scales its sines and cosines.

    Source: Megatron-Core, `rope_utils.apply_rotary_pos_emb`: "mscale is not supported by TE's fused
    RoPE. Using unfused implementation."
    """
    if spec.rope_scaling != "yarn":
        return _heads_apart(spec, "rope", width)
    return _heads_apart(spec, "rope", width, YARN, launches=(14, 16))


def _heads_apart(
    spec: TransformerSpec,
    name: str,
    width: int,
    moved: tuple[float, float] = (2, 2),
    launches: tuple[int, int] = (1, 1),
) -> Elementwise:
    """An operator on heads, which tensor parallelism divides; by default it reads and writes."""
    return elementwise(spec, name, *moved, width=width, region=Region.TENSOR, launches=launches)


def _latent_attention(spec: TransformerSpec, *, near: bool) -> tuple[Operator, ...]:
    """Multi-head latent attention: low-rank projections down, norms, projections up to all heads.

    Source: DeepSeek-V2 (arXiv:2405.04434), section 2.1; each rank of a tensor-parallel group has
    the projections down, which are small, and its share of those up.
    """
    h, a, d, rope = spec.hidden_size, spec.num_attention_heads, spec.head_dim, spec.rope_head_dim
    down: tuple[Operator, ...] = ()
    if spec.q_lora_rank:
        down = (
            _down(spec, "q_down", spec.q_lora_rank),
            norm(spec, "q_norm", spec.q_lora_rank, parameters=spec.q_lora_rank),
        )
    kv_width = a * (d - rope + spec.value_width)
    return (
        norm(spec, "attention_norm"),
        *down,
        product(spec, "q_up", spec.q_lora_rank or h, a * d, Split.COLUMN),
        replace(_down(spec, "kv_down", spec.kv_lora_rank + rope), keeps_input=False),
        norm(spec, "kv_norm", spec.kv_lora_rank, parameters=spec.kv_lora_rank),
        product(spec, "kv_up", spec.kv_lora_rank, kv_width, Split.COLUMN),
        # queries are read and written, keys and values put together from what all heads share
        _heads_apart(spec, "rope", 2 * a * d + a * spec.value_width, launches=(2, 2)),
        replace(_core(spec, a, near=near), value_dim=spec.value_width),
        product(spec, "projection", a * spec.value_width, h, Split.ROW, bias=spec.projection_bias),
        *joined(spec, "attention", spec.projection_bias),
    )


def _down(spec: TransformerSpec, name: str, outputs: int) -> Linear:
    down = product(spec, name, spec.hidden_size, outputs, Split.NONE)
    return replace(down, on_sequence=True)


def _qk_norm(spec: TransformerSpec, width: int) -> Elementwise:
    """RMS norms over each head's queries and keys, with one weight for all heads of either."""
    weights = 2 * spec.head_dim
    return norm(spec, "qk_norm", width, region=Region.TENSOR, parameters=weights, norms=2)


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
