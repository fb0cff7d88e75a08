"""Switches of the stack that Megatron-LM's arguments set otherwise than its usual jobs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from parsim.cost.software import DISPATCHERS
from parsim.errors import shown
from parsim.frameworks.reading.arguments import Reader


def software_of(reader: Reader) -> str | dict[str, Any]:
    """The stack, with the switches that the arguments set otherwise than its usual jobs."""
    switches: dict[str, Any] = {}
    if reader.number("--tensor-model-parallel-size", 1) > 1 and not reader.has("--tp-comm-overlap"):
        switches["tp_overlap"] = False
    if reader.has("--num-experts"):
        reader.notes.extend(_kernels_of_experts(reader))
    if reader.has("--moe-enable-deepep"):
        switches["expert_dispatcher"] = "deepep"
    backend = reader.word("--moe-flex-dispatcher-backend", "").lower()
    if backend in DISPATCHERS:
        switches["expert_dispatcher"] = backend
    if reader.has("--fp8-format") and reader.word("--fp8-recipe", "delayed") == "tensorwise":
        switches["fp8_scales"] = "current"
    if reader.has("--overlap-moe-expert-parallel-comm"):
        switches["expert_overlap"] = 1.0
    return {"name": "megatron-lm", **switches} if switches else "megatron-lm"


def _kernels_of_experts(reader: Reader) -> Iterator[str]:
    """Notes where experts get and compute their tokens otherwise than parsim takes it."""
    flag = "--moe-token-dispatcher-type"
    if reader.word(flag, "allgather") not in ("alltoall", "flex"):
        given = shown(reader.word(flag, "")) if reader.has(flag) else "not given, so allgather"
        yield f"{flag} is {given}: tokens are taken to move by all-to-alls"
    if not reader.has("--moe-grouped-gemm"):
        yield "no --moe-grouped-gemm: all experts of a rank are taken as one kernel"
