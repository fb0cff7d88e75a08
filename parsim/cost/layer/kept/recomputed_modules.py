"""Parts of a layer that backward computes again by name, as Megatron-Core's `recompute_modules`.

    core_attn        the attention core                                 its scores and log-sum-exps
    layernorm        norms before attention and before the MLP          what the norms write
    mla_up_proj      latent attention's projections up, and rotation    queries, keys and values
    mlp              a plain layer's MLP                                all but its input
    shared_experts   the MLP that every token of a mixture meets        all but its input
    moe_act          activation between the experts' products           the second product's input
    moe              router, exchange, experts and shared experts       all but their input
    attn_proj        projection behind attention                        what the next norm takes in

The right column is what then is not kept. Where a compiler makes one region of all that a plan
names (`Software.recompute_region`), what one part of it makes for another is not kept either, and
a last product whose output backward does not read is not computed again.

Source: Megatron-Core, `TransformerConfig.recompute_modules` and the modules that read it; for a
region `jax.checkpoint` under `save_only_these_names`, which keeps a layer's input and the outputs
of the products that it names (MaxText, `layers/decoders.py`).
Leaves out: that a part inside another one is kept while the outer one is computed again; in a
region, that experts' last product is not computed again.
"""

from __future__ import annotations

from collections.abc import Iterator

from parsim.model.layer import Layer
from parsim.model.operators import Attention, Elementwise, Experts, Linear, Operator

FEED_FORWARD = ("fc1", "fc2", "swiglu", "gelu")
"""Operators of a plain MLP."""

LATENT = ("q_up", "kv_up", "rope")
"""Operators between latent values and heads."""


UNREAD = ("fc2",)
"""Operators whose output no backward reads: it is added to what goes round the MLP."""


def repeated(layer: Layer, names: tuple[str, ...], *, region: bool = False) -> tuple[Operator, ...]:
    """Operators of a layer that are computed again; `moe_act` is a part of one, not among them.

    `region` says that a compiler repeats them as one.
    """
    again = (op for op in layer.operators if names and modules_of(layer, op) & set(names))
    return tuple(op for op in again if not (region and getattr(op, "name", "") in UNREAD))


def modules_of(layer: Layer, op: Operator) -> frozenset[str]:
    """The modules that an operator of a layer belongs to."""
    return frozenset(_modules(layer, op))


def _modules(layer: Layer, op: Operator) -> Iterator[str]:
    mixture = layer.experts is not None
    if isinstance(op, Attention):
        yield "core_attn"
    if isinstance(op, Experts):
        yield "moe"
    if not isinstance(op, (Elementwise, Linear)):
        return
    if op.name in ("attention_norm", "mlp_norm"):
        yield "layernorm"
    if op.name in LATENT and has_latent_attention(layer):
        yield "mla_up_proj"
    if op.name == "projection":
        yield "attn_proj"
    if op.name in FEED_FORWARD:
        yield from ("shared_experts", "moe") if mixture else ("mlp",)


def has_latent_attention(layer: Layer) -> bool:
    """Whether keys and values are projected up from narrower ones."""
    return any(isinstance(op, Linear) and op.name == "kv_up" for op in layer.operators)


WHOLE = "all"
"""The scope of one graph of a whole iteration."""


def launched(layer: Layer, graphs: tuple[str, ...]) -> tuple[Operator, ...]:
    """Operators that the host launches one by one where graphs launch some parts of layers.

    "attn" is what comes up to the attention's residual, "mamba" a mixer's layer, "moe_router" also
    the norm ahead and the shared experts; "all" leaves nothing.

    Source: Megatron-Core, `CudaGraphScope` and what captures its scopes.
    """
    if WHOLE in graphs:
        return ()
    return tuple(op for op in layer.operators if scope_of(layer, op) not in graphs)


def scope_of(layer: Layer, op: Operator) -> str:
    """The graph scope that an operator falls into, empty for routed experts and residuals."""
    if layer.name == "mamba_block":
        return "mamba"
    if isinstance(op, Experts):
        return ""
    names = [getattr(other, "name", "") for other in layer.operators]
    if "attention_residual" in names:
        index = layer.operators.index(op)
        if index <= names.index("attention_residual"):
            return "attn"
    return "moe_router" if layer.experts is not None else "mlp"
