"""Which sizes of a transformer contradict each other.

A `TransformerSpec` comes in; the first contradiction leaves as a `ModelError`.
"""

from __future__ import annotations

from dataclasses import replace

from parsim.model.spec import TransformerSpec
from parsim.model.spec_rules.adapters import check_adapters
from parsim.model.spec_rules.attention import check_latent, check_positions, check_rotation
from parsim.model.spec_rules.experts import check_experts
from parsim.model.spec_rules.layers import check_order, check_pattern, check_samples, check_scales
from parsim.model.spec_rules.sizes import MAX_LAYERS, check_sizes

RULES = (
    check_sizes,
    check_order,
    check_positions,
    check_scales,
    check_adapters,
    check_samples,
    check_rotation,
    check_pattern,
    check_experts,
    check_latent,
)
"""Checks in the order in which they are made: later ones may divide by what earlier ones saw."""

__all__ = ["MAX_LAYERS", "check_spec", "with_options"]


def with_options(spec: TransformerSpec, **changes: object) -> TransformerSpec:
    """Return the spec with some fields replaced, checked again."""
    changed = replace(spec, **changes)  # type: ignore[arg-type]
    check_spec(changed)
    return changed


def check_spec(spec: TransformerSpec) -> None:
    """Raise ModelError where sizes contradict each other."""
    for check in RULES:
        check(spec)
