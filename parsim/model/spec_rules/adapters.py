"""Adapters of low rank that a model cannot have, and modules that cannot be trained beside them."""

from __future__ import annotations

from parsim.errors import ModelError, did_you_mean, shown
from parsim.model.adapters import EMBEDDING, HEAD, SAVED, TARGETS
from parsim.model.spec import TransformerSpec


def check_adapters(spec: TransformerSpec) -> None:
    """The rank of adapters, and the matrices that they stand beside."""
    if spec.lora_rank < 0:
        raise ModelError(f"lora_rank={spec.lora_rank} must be at least 0")
    if spec.lora_targets and not spec.lora_rank:
        raise ModelError("lora_targets needs lora_rank, the rank of the adapters")
    unknown = next((name for name in spec.lora_targets if name not in TARGETS), None)
    if unknown is not None:
        raise ModelError(
            f"lora_targets={shown(unknown)} is unknown{did_you_mean(unknown, TARGETS)}; "
            f"allowed: {', '.join(TARGETS)}"
        )
    if spec.lora_rank > spec.hidden_size:
        raise ModelError(
            f"lora_rank={spec.lora_rank} is above hidden_size={spec.hidden_size}: adapters are of "
            f"a lower rank than what they stand beside"
        )
    _check_saved(spec)


def _check_saved(spec: TransformerSpec) -> None:
    """Modules trained whole beside adapters must be there; a tied table is both of them."""
    saved = spec.modules_to_save
    if saved and not spec.lora_rank:
        raise ModelError("modules_to_save needs lora_rank: without adapters all is trained")
    unknown = next((name for name in saved if name not in SAVED), None)
    if unknown is not None:
        raise ModelError(
            f"modules_to_save={shown(unknown)} is unknown{did_you_mean(unknown, SAVED)}; "
            f"allowed: {', '.join(SAVED)}"
        )
    if HEAD in saved and spec.head == "none":
        raise ModelError(f"modules_to_save={HEAD}: head=none has no matrix of logits")
    if len(set(saved)) == 1 and spec.tied_embeddings and spec.head != "none":
        raise ModelError(
            f"modules_to_save={saved[0]}: with tied_embeddings=true table and head are one matrix; "
            f"name both {EMBEDDING} and {HEAD}, or neither"
        )
