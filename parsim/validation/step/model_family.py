"""Model families by name: what their members share, where the catalog does not have the model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from parsim.model.config.families import BERT_CLASSES, FAMILY_FLAGS

_WITHOUT_BIASES = {"qkv_bias": False, "projection_bias": False, "mlp_bias": False}
_NEOX = {"rope": True, "tied_embeddings": False}
_POOLER, _HEAD = BERT_CLASSES["BertForPreTraining"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFamily:
    """Switches of `TransformerSpec`, and sizes that hold where a table leaves them blank.

    `positions` says that there is a learned table of positions, `plain_mlp` that the feed-forward
    part is 4 hidden sizes wide, as it is without a gate.
    """

    name: str
    vocabulary: int
    flags: Mapping[str, Any]
    positions: bool = False
    plain_mlp: bool = False


FAMILIES = (
    ModelFamily(name="llama2", vocabulary=32_000, flags=FAMILY_FLAGS["llama"]),
    ModelFamily(name="llama3", vocabulary=128_256, flags=FAMILY_FLAGS["llama"]),
    ModelFamily(name="mistral", vocabulary=32_000, flags=FAMILY_FLAGS["mistral"]),
    ModelFamily(
        name="nemotron",
        vocabulary=256_000,
        flags={**_WITHOUT_BIASES, "rope": True, "tied_embeddings": False},
        plain_mlp=True,
    ),
    ModelFamily(name="mpt", vocabulary=50_368, flags=_WITHOUT_BIASES, plain_mlp=True),
    ModelFamily(name="gptneox", vocabulary=50_432, flags=_NEOX, plain_mlp=True),
    ModelFamily(name="pythia", vocabulary=50_304, flags=_NEOX, plain_mlp=True),
    ModelFamily(name="bloom", vocabulary=250_880, flags=FAMILY_FLAGS["gpt2"], plain_mlp=True),
    ModelFamily(
        name="starcoder",
        vocabulary=49_152,
        flags=FAMILY_FLAGS["gpt2"],
        positions=True,
        plain_mlp=True,
    ),
    ModelFamily(
        name="smollm3",
        vocabulary=128_256,
        flags={**FAMILY_FLAGS["llama"], "tied_embeddings": True},
    ),
    ModelFamily(
        name="powerlm",
        vocabulary=49_152,
        flags={**FAMILY_FLAGS["llama"], "tied_embeddings": True},
    ),
    ModelFamily(
        name="bert",
        vocabulary=30_522,
        flags={**FAMILY_FLAGS["bert"], "pooler": _POOLER, "head": _HEAD},
        positions=True,
        plain_mlp=True,
    ),
    ModelFamily(
        name="gpt", vocabulary=51_200, flags=FAMILY_FLAGS["gpt2"], positions=True, plain_mlp=True
    ),
)
"""The first whose name is in a model's name counts, and the last where none is. Megatron's GPTs
pad GPT-2's vocabulary.

GPT-NeoX and Pythia have rotary positions and a head of their own (arXiv:2204.06745, section 2.1),
and add attention and MLP of a layer to the same input, which is predicted as one after the other.
BLOOM has neither table nor rotation (ALiBi, arXiv:2211.05100, section 3.2.2), StarCoder one
key-value head and a table of positions (arXiv:2305.06161, section 5.2), SmolLM3 and PowerLM tied
embeddings (their config.json).

BERT is pre-trained with a head: dense, GELU, norm and tied logits (arXiv:1810.04805)."""

MIXTURE = ModelFamily(name="mixtral", vocabulary=32_000, flags=FAMILY_FLAGS["mixtral"])
"""What a mixture of experts is taken for that the catalog does not have."""

BERT_NOTE = (
    "BERT rows have the masked-language head over all tokens and no next-sentence classifier; "
    "software that takes the masked tokens out first is up to a tenth faster"
)

_BY_NAME = {family.name: family for family in FAMILIES}


def model_family(name: str, *, later: bool = False) -> ModelFamily:
    """Family by the model's name; where it tells none, GPT, or Llama 3 for a `later` model.

    Their mark is a gated feed-forward part, which is not 4 hidden sizes wide; where a table leaves
    that blank, key-value heads for several queries.
    """
    return _named(name) or _BY_NAME["llama3" if later else "gpt"]


def has_gate(hidden_size: int, ffn_hidden_size: int) -> bool:
    """Whether a feed-forward part of this width has a gate; one without is 4 hidden sizes wide."""
    return ffn_hidden_size != 4 * hidden_size


def is_named(name: str) -> bool:
    """Whether a model's name tells its family."""
    return _named(name) is not None or FAMILIES[-1].name in _plain(name)


def _named(name: str) -> ModelFamily | None:
    named = (family for family in FAMILIES[:-1] if family.name in _plain(name))
    return next(named, _BY_NAME["llama3"] if "llama" in _plain(name) else None)


def _plain(name: str) -> str:
    return "".join(filter(str.isalnum, name.lower()))
