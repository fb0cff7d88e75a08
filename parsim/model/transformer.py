"""Transformer families as operators: GPT-2/3, Llama 2/3 and its kin, mixtures of experts, BERT.

Widths: h hidden, a heads, k key-value heads, d head size, f feed-forward, V vocabulary.
Traffic of a memory-bound operator is what an unfused-but-sensible kernel must read and write, in
values per token and width element; a software profile scales it (parsim/cost/software.py).
"""

from __future__ import annotations

from dataclasses import replace

from parsim.model.model import Model
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
from parsim.model.spec import Head, TransformerSpec, check_spec, with_options

__all__ = ("Head", "TransformerSpec", "build_transformer", "check_spec", "with_options")


def build_transformer(spec: TransformerSpec) -> Model:
    """Turn a spec into a Model whose parameter count is exact."""
    check_spec(spec)
    return Model(
        name=spec.name,
        seq_len=spec.seq_len,
        vocab_size=spec.vocab_rows,
        hidden_size=spec.hidden_size,
        embedding=_embedding(spec),
        layers=_layers(spec),
        head=_head(spec),
        tied_embeddings=spec.tied_embeddings and spec.head != "none",
    )


def _layers(spec: TransformerSpec) -> tuple[Layer, ...]:
    """Layers in order; equal ones are the same object."""
    if spec.layer_pattern:
        parts = {part: _part(spec, part) for part in sorted(set(spec.layer_pattern))}
        return tuple(parts[part] for part in spec.layer_pattern)
    known: dict[tuple[bool, bool], Layer] = {}
    found = []
    for number in range(spec.num_layers):
        sparse, near = kind = spec.has_experts(number), spec.has_window(number)
        if kind not in known:
            attention = _latent(spec) if spec.kv_lora_rank else _attention(spec, near)
            block = _experts(spec) if sparse else _mlp(spec)
            name = "expert_block" if sparse else "block"
            known[kind] = Layer(name=name, operators=(*attention, *block))
        found.append(known[kind])
    return (*found, *[_prediction(spec)] * spec.predicted_tokens)


def _prediction(spec: TransformerSpec) -> Layer:
    """A layer that predicts one more token: two norms, a projection of both, a block, logits.

    Source: DeepSeek-V3 (arXiv:2412.19437), section 2.2; embedding and logits' weights are shared.
    Leaves out: the lookup of the token, the memory of its logits.
    """
    h = spec.hidden_size
    attention = _latent(spec) if spec.kv_lora_rank else _attention(spec, near=False)
    return Layer(
        name="prediction_block",
        operators=(
            _norm(spec, "hidden_norm"),
            _norm(spec, "token_norm"),
            Linear(name="joined", inputs=2 * h, outputs=h, split=Split.COLUMN, bias=False),
            *attention,
            *(_experts(spec) if spec.num_experts else _mlp(spec)),
            _norm(spec, "final_norm"),
            Linear(
                name="logits",
                inputs=h,
                outputs=spec.vocab_rows,
                split=Split.COLUMN,
                bias=False,
                owns_weight=False,
            ),
            Loss(vocab_size=spec.vocab_rows),
        ),
    )


def _part(spec: TransformerSpec, part: str) -> Layer:
    """A layer of a hybrid, by its letter."""
    if part == "M":
        return Layer(name="mamba_block", operators=_mamba(spec))
    if part == "*":
        return Layer(name="attention_block", operators=_attention(spec, near=False))
    if part == "E":
        return Layer(name="expert_block", operators=_experts(spec))
    return Layer(name="mlp_block", operators=_mlp(spec))


MAMBA_FORWARD, MAMBA_BACKWARD, MAMBA_SAVED = 17.0, 48.0, 5.0
"""Values moved and kept per token and inner width of a Mamba-2 mixer between its projections, with
chunks of 128 tokens, whose states in fp32 are 2 values. Forward: convolution 3, states of chunks
3.25, passing them on 3, products inside chunks 1, scan 3.75, gated norm 3. Backward: the same again
without scan and norm 10.25, gated norm 6, gradients of states 3.25, of passing them on 7, of values
5, of both sides of the states 5, of products inside chunks 4, of decays 2.5, convolution 4.5. Kept:
what the projection made (2.5), what the convolution made (1.5), the scan's output (1)."""

CONVOLUTION = 4
"""Tokens that the mixer's convolution sees."""


def _mamba(spec: TransformerSpec) -> tuple[Operator, ...]:
    """A Mamba-2 mixer: a projection to gate, values, both sides of the states, and time steps.

    Source: Dao and Gu 2024 (arXiv:2405.21060), section 8; kernels of state-spaces/mamba, whose
    arithmetic (some 4.7 MFLOP a token, a tenth of the projections') hides under their traffic.
    Leaves out: that arithmetic, in model FLOPs too.
    """
    h, inner = spec.hidden_size, spec.mamba_heads * spec.mamba_head_dim
    convolved = inner + 2 * spec.mamba_groups * spec.mamba_state
    own = convolved * (CONVOLUTION + 1) + 3 * spec.mamba_heads + inner
    mixer = Elementwise(
        name="scan",
        width=inner,
        region=Region.TENSOR,
        forward=MAMBA_FORWARD,
        backward=MAMBA_BACKWARD,
        saved=MAMBA_SAVED,
        launches=(7, 14),
        repeated_parameters=own,
    )
    outputs = inner + convolved + spec.mamba_heads
    return (
        _norm(spec, "mamba_norm"),
        Linear(name="mamba_in", inputs=h, outputs=outputs, split=Split.COLUMN, bias=False),
        mixer,
        Linear(name="mamba_out", inputs=inner, outputs=h, split=Split.ROW, bias=False),
        _residual(spec, "mamba_residual", False),
    )


def _embedding(spec: TransformerSpec) -> Layer:
    lookup = Lookup(
        vocab_size=spec.vocab_rows,
        width=spec.hidden_size,
        positions=spec.positions,
        token_types=spec.token_types,
    )
    extra: tuple[Operator, ...] = (_norm(spec, "embedding_norm"),) if spec.post_norm else ()
    if spec.dropout:
        # read x, write y and the mask; backward reads dy and the mask, writes dx
        extra += (_sequence(spec, "embedding_dropout", 2, 2, mask=1),)
    return Layer(name="embedding", operators=(lookup, *extra))


def _attention(spec: TransformerSpec, near: bool) -> tuple[Operator, ...]:
    h, d = spec.hidden_size, spec.head_dim
    q_width, kv_width = spec.num_attention_heads * d, spec.num_key_value_heads * d
    qkv_width = q_width + 2 * kv_width
    before: tuple[Operator, ...] = () if spec.post_norm else (_norm(spec, "attention_norm"),)
    after: tuple[Operator, ...] = (_norm(spec, "attention_norm"),) if spec.post_norm else ()
    rope = (_rotation(spec, q_width + kv_width),) if spec.rope else ()
    if spec.qk_norm:
        rope = (_qk_norm(spec, q_width + kv_width), *rope)
    # an unfused kernel wants (batch, head) outermost: two tensors of width h are copied to get
    # there and back, the others are views (8 bytes per h in the traffic count of the 22B layer)
    transposes = () if spec.fused_attention else (_tensor("transpose", 2 * h, 2, 2, launches=2),)
    return (
        *before,
        Linear(name="qkv", inputs=h, outputs=qkv_width, split=Split.COLUMN, bias=spec.qkv_bias),
        *rope,
        *transposes,
        Attention(
            heads=spec.num_attention_heads,
            kv_heads=spec.num_key_value_heads,
            head_dim=d,
            causal=spec.causal,
            fused=spec.fused_attention,
            dropout=spec.dropout,
            window=spec.window if near else None,
        ),
        Linear(
            name="projection",
            inputs=q_width,
            outputs=h,
            split=Split.ROW,
            bias=spec.projection_bias,
        ),
        _residual(spec, "attention_residual", spec.projection_bias),
        *after,
    )


YARN = (12.0, 14.0)
"""Values that an unfused rotation moves, forward and backward: two products with sines and cosines
(2 each), the turned half (half 1 + 1, whole 1 + 1), their sum (3) and a copy (2); backward the same
products, the turn back, and the sum of both gradients."""


def _rotation(spec: TransformerSpec, width: int) -> Elementwise:
    """Rotary positions: one fused kernel, or a dozen where YaRN scales its sines and cosines.

    Source: Megatron-Core, `rope_utils.apply_rotary_pos_emb`: "mscale is not supported by TE's fused
    RoPE. Using unfused implementation."
    """
    if not spec.yarn:
        return _tensor("rope", width, 2, 2)
    return replace(_tensor("rope", width, *YARN), launches=(14, 16))


def _latent(spec: TransformerSpec) -> tuple[Operator, ...]:
    """Multi-head latent attention: low-rank projections down, norms, projections up to all heads.

    Source: DeepSeek-V2 (arXiv:2405.04434), section 2.1; each rank of a tensor-parallel group has
    the projections down, which are small, and its share of those up.
    """
    h, a, d, rope = spec.hidden_size, spec.num_attention_heads, spec.head_dim, spec.rope_head_dim
    down: tuple[Operator, ...] = ()
    if spec.q_lora_rank:
        down = (_down("q_down", h, spec.q_lora_rank), _latent_norm("q_norm", spec.q_lora_rank))
    kv_width = a * (d - rope + spec.value_width)
    return (
        _norm(spec, "attention_norm"),
        *down,
        Linear(
            name="q_up", inputs=spec.q_lora_rank or h, outputs=a * d, split=Split.COLUMN, bias=False
        ),
        _down("kv_down", h, spec.kv_lora_rank + rope),
        _latent_norm("kv_norm", spec.kv_lora_rank),
        Linear(
            name="kv_up", inputs=spec.kv_lora_rank, outputs=kv_width, split=Split.COLUMN, bias=False
        ),
        # queries are read and written, keys and values put together from what all heads share
        _tensor("rope", 2 * a * d + a * spec.value_width, 2, 2, launches=2),
        Attention(
            heads=a,
            kv_heads=a,
            head_dim=d,
            causal=spec.causal,
            fused=spec.fused_attention,
            dropout=spec.dropout,
            value_dim=spec.value_width,
        ),
        Linear(
            name="projection",
            inputs=a * spec.value_width,
            outputs=h,
            split=Split.ROW,
            bias=spec.projection_bias,
        ),
        _residual(spec, "attention_residual", spec.projection_bias),
    )


def _down(name: str, inputs: int, outputs: int) -> Linear:
    return Linear(
        name=name, inputs=inputs, outputs=outputs, split=Split.NONE, bias=False, on_sequence=True
    )


def _latent_norm(name: str, width: int) -> Elementwise:
    return _normed(name, width, Region.SEQUENCE, parameters=width)


def _qk_norm(spec: TransformerSpec, width: int) -> Elementwise:
    """RMS norms over each head's queries and keys, with one weight for all heads of either."""
    return _normed("qk_norm", width, Region.TENSOR, parameters=2 * spec.head_dim, norms=2)


def _experts(spec: TransformerSpec) -> tuple[Operator, ...]:
    """Experts, and beside them the shared one, which is a plain MLP that every token meets."""
    width = spec.shared_expert_ffn_hidden_size
    shared = _feed_forward(spec, width) if width else ()
    return (
        _norm(spec, "mlp_norm"),
        Experts(
            count=spec.num_experts,
            top_k=spec.experts_per_token,
            width=spec.hidden_size,
            ffn_hidden_size=spec.expert_ffn_hidden_size,
            gated=spec.gated_mlp,
            bias=spec.mlp_bias,
        ),
        *shared,
        _residual(spec, "mlp_residual", spec.mlp_bias),
    )


def _mlp(spec: TransformerSpec) -> tuple[Operator, ...]:
    norm = _norm(spec, "mlp_norm")
    block: tuple[Operator, ...] = (
        *_feed_forward(spec, spec.ffn_hidden_size),
        _residual(spec, "mlp_residual", spec.mlp_bias),
    )
    return (*block, norm) if spec.post_norm else (norm, *block)


def _feed_forward(spec: TransformerSpec, f: int) -> tuple[Operator, ...]:
    h = spec.hidden_size
    halves = 2 if spec.gated_mlp else 1
    # GELU: read x, write y; backward reads dy and x, writes dx. SwiGLU reads both halves, writes
    # one; backward reads dy and both halves, writes both. The input(s) are kept for backward.
    activation = _tensor(
        "swiglu" if spec.gated_mlp else "gelu", f, 1 + halves, 1 + 2 * halves, saved=halves
    )
    return (
        Linear(name="fc1", inputs=h, outputs=halves * f, split=Split.COLUMN, bias=spec.mlp_bias),
        activation,
        Linear(name="fc2", inputs=f, outputs=h, split=Split.ROW, bias=spec.mlp_bias),
    )


def _head(spec: TransformerSpec) -> Layer:
    h = spec.hidden_size
    ops: list[Operator] = [] if spec.post_norm else [_norm(spec, "final_norm")]
    if spec.pooler:
        pooler = Linear(
            name="pooler", inputs=h, outputs=h, split=Split.NONE, bias=True, per_sequence=True
        )
        ops.append(pooler)
    if spec.head == "mlm":
        # BERT's masked-language head: dense h x h, GELU, norm, then the tied output projection
        ops.append(Linear(name="transform", inputs=h, outputs=h, split=Split.NONE, bias=True))
        ops.append(_sequence(spec, "transform_gelu", 2, 3, saved=1))
        ops.append(_norm(spec, "transform_norm"))
    if spec.head != "none":
        ops.append(
            Linear(
                name="logits",
                inputs=h,
                outputs=spec.vocab_rows,
                split=Split.COLUMN,
                bias=spec.head == "mlm",
                owns_weight=not spec.tied_embeddings,
            )
        )
        ops.append(Loss(vocab_size=spec.vocab_rows))
    return Layer(name="head", operators=tuple(ops))


def _norm(spec: TransformerSpec, name: str) -> Elementwise:
    return _normed(name, spec.hidden_size, Region.SEQUENCE, parameters=spec.norm_parameters)


def _normed(
    name: str, width: int, region: Region, *, parameters: int, norms: int = 1
) -> Elementwise:
    # forward reads x, writes y; backward reads dy and x twice (weight gradient apart), writes dx
    return Elementwise(
        name=name,
        width=width,
        region=region,
        forward=2,
        backward=4,
        saved=1,
        launches=(norms, 2 * norms),
        repeated_parameters=parameters,
    )


def _residual(spec: TransformerSpec, name: str, bias: bool) -> Elementwise:
    # forward reads the branch and the residual, writes the sum (and the dropout mask); backward
    # adds the two gradients (2 reads, 1 write), reads again for the bias, drops (1 read, 1 write)
    mask = 1 if spec.dropout else 0
    backward = 3 + (1 if bias else 0) + (2 if spec.dropout else 0)
    return _sequence(spec, name, 3, backward, mask=mask, launches=(1, 1 + bias + mask))


def _sequence(
    spec: TransformerSpec,
    name: str,
    forward: float,
    backward: float,
    *,
    saved: float = 0,
    mask: float = 0,
    launches: tuple[int, int] = (1, 1),
) -> Elementwise:
    return Elementwise(
        name=name,
        width=spec.hidden_size,
        region=Region.SEQUENCE,
        forward=forward,
        backward=backward,
        saved=saved,
        forward_mask=mask,
        backward_mask=mask,
        saved_mask=mask,
        launches=launches,
    )


def _tensor(
    name: str, width: int, forward: float, backward: float, saved: float = 0, launches: int = 1
) -> Elementwise:
    return Elementwise(
        name=name,
        width=width,
        region=Region.TENSOR,
        forward=forward,
        backward=backward,
        saved=saved,
        launches=(launches, launches),
    )
