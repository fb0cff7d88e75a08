"""Operators with a transformer's sizes: single ones, and what stands behind its attention.

Traffic of a memory-bound operator is what an unfused-but-sensible kernel must read and write, in
values per token and width element; a software profile scales it (parsim/cost/software/).
"""

from __future__ import annotations

from dataclasses import replace

from parsim.model.operators import Elementwise, Experts, Linear, Operator, Region, Split
from parsim.model.spec import TransformerSpec

LOGITS = "logits"
"""Name of the product of the head."""


def product(
    spec: TransformerSpec, name: str, inputs: int, outputs: int, split: Split, *, bias: bool = False
) -> Linear:
    """A matrix product of all tokens."""
    return Linear(
        name=name, tokens=spec.seq_len, inputs=inputs, outputs=outputs, split=split, bias=bias
    )


def elementwise(
    spec: TransformerSpec,
    name: str,
    forward: float,
    backward: float,
    *,
    width: int | None = None,
    region: Region = Region.SEQUENCE,
    saved: float = 0.0,
    launches: tuple[int, int] = (1, 1),
) -> Elementwise:
    """A memory-bound operator of all tokens, of the model's width unless another one is given."""
    return Elementwise(
        name=name,
        tokens=spec.seq_len,
        width=spec.hidden_size if width is None else width,
        region=region,
        forward=forward,
        backward=backward,
        saved=saved,
        launches=launches,
    )


def norm(
    spec: TransformerSpec,
    name: str,
    width: int | None = None,
    *,
    region: Region = Region.SEQUENCE,
    parameters: int | None = None,
    norms: int = 1,
) -> Elementwise:
    """A norm over the model's width or another one, or several norms of one width in a row."""
    # forward reads x, writes y; backward reads dy and x twice (weight gradient apart), writes dx
    launches = (norms, 2 * norms)
    scaled = elementwise(spec, name, 2, 4, width=width, region=region, saved=1, launches=launches)
    count = spec.norm_parameters if parameters is None else parameters
    return replace(scaled, repeated_parameters=count)


def scale(spec: TransformerSpec, name: str, factor: float) -> tuple[Elementwise, ...]:
    """Hidden states multiplied by a number: read and written in either direction; 1 is free."""
    return () if factor == 1.0 else (elementwise(spec, name, 2, 2),)


def residual(spec: TransformerSpec, name: str, bias: bool) -> Elementwise:
    """The sum of a branch and what it started from, with the branch's bias and dropout.

    A scale of the branch is part of the sum; its gradient is scaled in a pass (read, written).
    """
    # forward reads the branch and the residual, writes the sum (and the dropout mask); backward
    # adds the two gradients (2 reads, 1 write), reads again for the bias, drops (1 read, 1 write)
    mask = 1 if spec.dropout else 0
    scaled = spec.residual_scale != 1.0
    launches = (1, 1 + bias + mask + scaled)
    moved = 3 + bias + 2 * mask + 2 * scaled
    return replace(elementwise(spec, name, 3, moved, launches=launches), mask=mask)


def joined(spec: TransformerSpec, part: str, bias: bool) -> tuple[Operator, ...]:
    """What adds a part of a layer to what it started from, behind a norm where the spec has one."""
    after = (norm(spec, f"{part}_out_norm"),) if spec.norms_after else ()
    return (*after, residual(spec, f"{part}_residual", bias))


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
        *joined(spec, "mlp", spec.mlp_bias),
    )


def mlp(spec: TransformerSpec) -> tuple[Operator, ...]:
    """A plain MLP with its norm and residual."""
    scaled = norm(spec, "mlp_norm")
    block: tuple[Operator, ...] = (
        *_feed_forward(spec, spec.ffn_hidden_size),
        *joined(spec, "mlp", spec.mlp_bias),
    )
    if spec.parallel_block == "shared_norm":  # the one before attention
        return block
    return (*block, scaled) if spec.post_norm else (scaled, *block)


def _feed_forward(spec: TransformerSpec, f: int) -> tuple[Operator, ...]:
    """Two products with an activation between them; gated ones have two halves."""
    h = spec.hidden_size
    halves = 2 if spec.gated_mlp else 1
    # GELU: read x, write y; backward reads dy and x, writes dx. SwiGLU reads both halves, writes
    # one; backward reads dy and both halves, writes both. The input(s) are kept for backward; of
    # a ReLU its output is, which the second product keeps
    rectified = spec.activation == "relu" and not spec.gated_mlp
    activation = elementwise(
        spec,
        "swiglu" if spec.gated_mlp else "gelu",
        1 + halves,
        1 + 2 * halves,
        width=f,
        region=Region.TENSOR,
        saved=0 if rectified else halves,
    )
    return (
        replace(
            product(spec, "fc1", h, halves * f, Split.COLUMN, bias=spec.mlp_bias), matrices=halves
        ),
        activation,
        product(spec, "fc2", f, h, Split.ROW, bias=spec.mlp_bias),
    )
