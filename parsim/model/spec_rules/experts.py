"""Mixtures of experts whose numbers do not fit together: groups, experts a token, their layers."""

from __future__ import annotations

from parsim.errors import ModelError
from parsim.model.spec import TransformerSpec


def check_experts(spec: TransformerSpec) -> None:
    """How many experts there are, how many a token has, and which layers have them."""
    if not spec.num_experts:
        return
    if not 1 <= spec.experts_per_token <= spec.num_experts:
        raise ModelError(
            f"experts_per_token={spec.experts_per_token} must be from 1 to "
            f"num_experts={spec.num_experts}"
        )
    _check_expert_groups(spec)
    _check_expert_layers(spec)


def _check_expert_layers(spec: TransformerSpec) -> None:
    """Layers with experts: their width, how often they come, and norms where they need them."""
    for field in ("expert_ffn_hidden_size", "expert_every"):
        if getattr(spec, field) < 1:
            raise ModelError(
                f"{field}={getattr(spec, field)} must be at least 1 "
                f"with num_experts={spec.num_experts}"
            )
    if spec.post_norm:
        raise ModelError(f"num_experts={spec.num_experts}: experts need norms before each block")
    if not any(map(spec.has_experts, range(spec.num_layers))):
        raise ModelError(
            f"dense_layers={spec.dense_layers} and expert_every={spec.expert_every} leave none of "
            f"{spec.num_layers} layers with experts; use num_experts=0 for a dense model"
        )


def _check_expert_groups(spec: TransformerSpec) -> None:
    """A token's experts come from a few of several equal groups."""
    groups = spec.expert_groups
    if groups < 1 or spec.num_experts % groups:
        raise ModelError(
            f"expert_groups={groups} must divide num_experts={spec.num_experts} into equal groups"
        )
    if not 1 <= spec.groups_per_token <= groups:
        raise ModelError(
            f"groups_per_token={spec.groups_per_token} must be from 1 to expert_groups={groups}"
        )
    within = spec.groups_per_token * spec.num_experts // groups
    if spec.experts_per_token > within:
        raise ModelError(
            f"experts_per_token={spec.experts_per_token} must be at most the {within} experts of "
            f"groups_per_token={spec.groups_per_token} groups"
        )
