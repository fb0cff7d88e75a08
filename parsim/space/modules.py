"""Which parts of a model's layers a search tries to compute again by name."""

from __future__ import annotations

from parsim.cost.layer.kept.recomputed_modules import modules_of
from parsim.model.model import Model
from parsim.plan.activations import RECOMPUTE_MODULES

WHOLE = ("core_attn", "moe")
"""Modules that are no choice beside the others: one is selective recomputation, the other holds
shared experts and the activation of routed ones."""


def module_sets(model: Model) -> tuple[tuple[str, ...], ...]:
    """Nothing, each module that the model's layers have, and all cheap ones of them together.

    Cheap are norms, the projections up of latent attention and the activation of experts: what
    Megatron-Core's documentation names to save memory for little time.
    """
    has = {
        name for layer in model.kinds for op in layer.operators for name in modules_of(layer, op)
    }
    if model.experts is not None:
        has.add("moe_act")
    single = [name for name in RECOMPUTE_MODULES if name in has and name not in WHOLE]
    cheap = tuple(name for name in single if name not in ("mlp", "shared_experts"))
    sets = [(), *((name,) for name in single), cheap]
    return tuple(dict.fromkeys(sets))
