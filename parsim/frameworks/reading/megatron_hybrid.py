"""Layers of one part each, Mamba-2 among them, that Megatron-LM's arguments describe."""

from __future__ import annotations

from typing import Any

from parsim.errors import InputError, shown
from parsim.frameworks.reading.arguments import Reader
from parsim.model.spec_rules import MAX_LAYERS

PATTERNS = ("--hybrid-layer-pattern", "--hybrid-override-pattern")
"""Flags that name each layer: the later one, and the older one."""

_LETTERS = "M*-E"
"""Mamba-2, attention, feed-forward and experts (hybrid_layer_allocation.py)."""


def is_hybrid(reader: Reader) -> bool:
    """Whether the layers are named one by one."""
    return any(reader.has(flag) for flag in PATTERNS)


def hybrid_sizes(reader: Reader, hidden: int) -> dict[str, Any]:
    """Layers by their letters, and sizes of the Mamba-2 mixers; what stands behind / predicts.

    Raises:
        InputError: a letter of a layer that parsim does not know.
    """
    flag = next(flag for flag in PATTERNS if reader.has(flag))
    main, *predicting = reader.word(flag, "").split("/")
    layers = main.replace("|", "")
    unknown = "".join(sorted(set(layers) - set(_LETTERS)))
    if unknown or not layers or len(layers) > MAX_LAYERS:
        raise InputError(f"{flag} {shown(main)} must name up to {MAX_LAYERS} layers by {_LETTERS}")
    if "|" in main:
        reader.notes.append(f"{flag}: stages are cut evenly, not at |")
    reader.has("--num-layers")  # the pattern counts
    width = reader.count("--mamba-head-dim", 64)
    return {
        "family": "nemotron_h",
        "num_layers": len(layers),
        "layer_pattern": layers,
        "mamba_head_dim": width,
        "mamba_heads": reader.count("--mamba-num-heads", max(2 * hidden // width, 1)),
        "mamba_state": reader.count("--mamba-state-dim", 128),
        "mamba_groups": reader.count("--mamba-num-groups", 8),
        "predicted_tokens": len(predicting) or reader.number("--mtp-num-layers", 0),
    }
