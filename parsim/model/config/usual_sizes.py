"""Fields of a spec that follow from its sizes, by the family that it is of."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from parsim.model.config.families import FAMILIES, FAMILY_FLAGS
from parsim.model.config.family import Family


def usual_sizes(family: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of a spec that follow from `given` sizes in a family, where nothing states them."""
    flags, known = FAMILY_FLAGS[family], FAMILIES.get(family, Family())
    width, heads = given["hidden_size"], given["num_attention_heads"]
    head_dim = given.get("head_dim", width // heads)
    learned = given["seq_len"] + flags.get("first_position", 0)
    sizes = {
        "num_key_value_heads": heads,
        "head_dim": head_dim,
        "ffn_hidden_size": 4 * width,
        "positions": 0 if flags.get("rope") else learned,
    }
    if known.scaled_embeddings:
        sizes["embedding_scale"] = math.sqrt(width)
    if known.rotary_share < 1 and not known.latent:
        sizes["rope_head_dim"] = int(head_dim * known.rotary_share)
    return sizes
