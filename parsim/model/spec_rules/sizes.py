"""Sizes of a transformer that are too small, too large, or do not divide each other."""

from __future__ import annotations

from parsim.errors import ModelError
from parsim.model.spec import TransformerSpec

MAX_LAYERS = 10_000
"""Ten times the deepest transformer trained (Wang et al. 2022, DeepNet: 1,000); more is a slip in a
file, and would exhaust memory."""


SIZES = (
    "num_layers",
    "hidden_size",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "ffn_hidden_size",
    "vocab_size",
    "seq_len",
)
"""Fields of a spec that are at least 1."""


def check_sizes(spec: TransformerSpec) -> None:
    """Sizes of the matrices, each alone and beside its neighbour."""
    for field in SIZES:
        if getattr(spec, field) < 1:
            raise ModelError(f"{field}={getattr(spec, field)} must be at least 1")
    if spec.num_layers > MAX_LAYERS:
        raise ModelError(f"num_layers={spec.num_layers} is above {MAX_LAYERS}")
    if spec.num_attention_heads % spec.num_key_value_heads:
        raise ModelError(
            f"num_key_value_heads={spec.num_key_value_heads} does not divide "
            f"num_attention_heads={spec.num_attention_heads}"
        )
    if spec.padded_vocab_size is not None and spec.padded_vocab_size < spec.vocab_size:
        raise ModelError(
            f"padded_vocab_size={spec.padded_vocab_size} is below vocab_size={spec.vocab_size}"
        )
