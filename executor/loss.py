"""The training loss, and which models have one."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional as F

from parsim.errors import ModelError
from parsim.model.transformer import TransformerSpec

IGNORED = -100
"""A target that does not count: a token that was not masked."""


def loss(logits: Tensor, targets: Tensor) -> Tensor:
    """Cross entropy in fp32 of logits (b, s, V) and token ids (b, s), mean over counted tokens."""
    return F.cross_entropy(
        logits.flatten(0, 1).float(), targets.flatten(), ignore_index=IGNORED, reduction="mean"
    )


def check_trainable(spec: TransformerSpec) -> None:
    """Refuse a model that gives no logits.

    Raises:
        ModelError: the spec has no head.
    """
    if spec.head == "none":
        raise ModelError(
            f"{spec.name} has head=none, so there is no loss to train it with; "
            f"set head: {'lm' if spec.causal else 'mlm'} in the model section"
        )
