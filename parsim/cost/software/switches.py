"""What a job may set of its stack for itself, and what else that changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from parsim.cost.software.catalog import software_catalog
from parsim.cost.software.record import Software
from parsim.errors import CatalogError

SWITCHES = (
    *("compile", "tp_overlap", "cuda_graphs", "blocking_launches", "fused_experts"),
    *("expert_dispatcher", "expert_choice", "expert_overlap", "expert_imbalance"),
    "quantized_dispatch",
    *("fp8_scales", "quantized_logits", "quantized_attention"),
)
"""Fields that a job of a stack may set for itself, because its users do."""

_NOTHING_BESIDE: Mapping[str, Any] = {
    **dict.fromkeys(("overlap", "tp_overlap_backward"), 0.0),
    **dict.fromkeys(("tp_overlap", "overlap_p2p"), False),
    **dict.fromkeys(("overlap_grad_reduce", "overlap_param_gather"), False),
    "expert_overlap": {"default": 0.0},
}
"""What a host that waits for each kernel leaves of overlap."""


def changed_switches(stack: Software) -> dict[str, Any]:
    """What a scenario changed of the catalog's stack, by field."""
    usual = software_catalog().get(stack.id, stack)
    values = {name: getattr(stack, name) for name in SWITCHES}
    changed = {name: now for name, now in values.items() if now != getattr(usual, name)}
    if "expert_overlap" in changed:
        changed["expert_overlap"] = stack.expert_overlap["default"]
    return changed


def with_switches(stack: Software, values: Mapping[str, Any]) -> Software:
    """The stack with some of `SWITCHES` set; `expert_overlap` is one share for all devices.

    Compiled, layers move less and let go what backward does not read.

    Raises:
        CatalogError: `compile` of a stack without that switch.
    """
    given = dict(values)
    if given.get("compile", stack.compile) != stack.compile:
        given |= _compiled(stack, given["compile"])
    if "expert_overlap" in given:
        given["expert_overlap"] = {"default": given["expert_overlap"]}
    if given.get("blocking_launches"):
        given |= _NOTHING_BESIDE
    return replace(stack, **given)


def _compiled(stack: Software, asked: bool) -> dict[str, Any]:
    """What changes where torch.compile is switched on or off."""
    if not stack.eager_traffic:
        have = (name for name, known in software_catalog().items() if known.eager_traffic)
        raise CatalogError(
            f"software.compile={str(asked).lower()}: stack {stack.id} has no such switch, its "
            f"kernels are what they are; stacks with it: {', '.join(sorted(have))}"
        )
    factor = 1.0 / stack.eager_traffic if asked else stack.eager_traffic
    changed: dict[str, Any] = {"traffic": stack.traffic * factor, "keeps_output": not asked}
    if stack.uncompiled_values:
        changed["eager_values"] = {} if asked else stack.uncompiled_values
        changed["eager_kept"] = {} if asked else stack.uncompiled_kept
    return changed
