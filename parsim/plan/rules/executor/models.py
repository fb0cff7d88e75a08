"""Models, and splits of a model, that the executor cannot build."""

from __future__ import annotations

from collections.abc import Iterator

from parsim.model.layer import Branches, Layer
from parsim.model.model import Model
from parsim.model.operators import Attention
from parsim.plan.record import Plan


def unbuildable(model: Model) -> str | None:
    """The first part of a model that only the simulator has, or None."""
    part = next((part for layer in model.kinds for part in _simulated(layer)), None)
    return part and f"{part} can be simulated but not run yet; use a model without it"


def _simulated(layer: Layer) -> Iterator[str]:
    if layer.name in ("mamba_block", "attention_block", "mlp_block"):
        yield f"layer_pattern: layers of one part ({layer.name})"
    if any(isinstance(part, Branches) for part in layer.parts):
        yield f"layers with branches ({layer.name})"
    for op in layer.operators:
        if isinstance(op, Attention) and op.value_dim is not None and op.dropout:
            yield "kv_lora_rank: latent attention with dropout"
        if isinstance(op, Attention) and op.window is not None and (op.dropout or not op.causal):
            what = "with dropout" if op.dropout else "that sees later tokens"
            yield f"window={op.window}: windowed attention {what}"


def wrong_experts(plan: Plan, model: Model) -> str | None:
    """What does not go with the experts of a layer, which are reduced over ranks of their own."""
    experts = model.experts
    if experts is None:
        return None
    if experts.bias and experts.width % plan.etp:
        return (
            f"etp={plan.etp} does not divide hidden_size={experts.width}, the width of the last "
            f"biases of experts, which are divided too; use an etp that divides it"
        )
    return None


def wrong_vocabulary(plan: Plan, model: Model) -> str | None:
    """The table and the logits are split in equal parts.

    An uneven split would train, but its largest part sets the pace, which no plan accounts for.
    """
    rows = model.lookup.vocab_size if model.lookup else 1
    if rows % plan.tp == 0:
        return None
    padded = -(-rows // plan.tp) * plan.tp
    return f"tp={plan.tp} does not divide padded_vocab_size={rows}; use padded_vocab_size={padded}"


def wrong_heads(plan: Plan, model: Model) -> str | None:
    """Stages of their own have groups of tensor ranks that copy no key-value heads."""
    core, tp = model.attention, max(plan.stage_tp)
    if not plan.runs_as_tasks or core is None or tp <= core.kv_heads:
        return None
    return (
        f"tp={tp} with num_key_value_heads={core.kv_heads}: stages of their own and pipelines "
        f"without flush copy no heads; use tp of at most {core.kv_heads}"
    )
