"""What stands behind the attention of a transformer: a plain MLP, or routed experts."""

from __future__ import annotations

from parsim.model.operators import Experts, Operator, Region, Split
from parsim.model.spec import TransformerSpec
from parsim.model.transformer_operators import elementwise, norm, product, residual


def experts(spec: TransformerSpec) -> tuple[Operator, ...]:
    """Experts, and beside them the shared one, which is a plain MLP that every token meets."""
    width = spec.shared_expert_ffn_hidden_size
    shared = _feed_forward(spec, width) if width else ()
    return (
        norm(spec, "mlp_norm"),
        Experts(
            tokens=spec.seq_len,
            count=spec.num_experts,
            top_k=spec.experts_per_token,
            groups=spec.expert_groups,
            top_groups=spec.groups_per_token,
            width=spec.hidden_size,
            ffn_hidden_size=spec.expert_ffn_hidden_size,
            gated=spec.gated_mlp,
            bias=spec.mlp_bias,
        ),
        *shared,
        residual(spec, "mlp_residual", spec.mlp_bias),
    )


def mlp(spec: TransformerSpec) -> tuple[Operator, ...]:
    """A plain MLP with its norm and residual."""
    scaled = norm(spec, "mlp_norm")
    block: tuple[Operator, ...] = (
        *_feed_forward(spec, spec.ffn_hidden_size),
        residual(spec, "mlp_residual", spec.mlp_bias),
    )
    return (*block, scaled) if spec.post_norm else (scaled, *block)


def _feed_forward(spec: TransformerSpec, f: int) -> tuple[Operator, ...]:
    h = spec.hidden_size
    halves = 2 if spec.gated_mlp else 1
    # GELU: read x, write y; backward reads dy and x, writes dx. SwiGLU reads both halves, writes
    # one; backward reads dy and both halves, writes both. The input(s) are kept for backward.
    activation = elementwise(
        spec,
        "swiglu" if spec.gated_mlp else "gelu",
        1 + halves,
        1 + 2 * halves,
        width=f,
        region=Region.TENSOR,
        saved=halves,
    )
    return (
        product(spec, "fc1", h, halves * f, Split.COLUMN, bias=spec.mlp_bias),
        activation,
        product(spec, "fc2", f, h, Split.ROW, bias=spec.mlp_bias),
    )
