"""Sizes that a table leaves blank and a model's name decides: mixtures of experts of the catalog.

Tables of mixtures often print a name and no sizes. A name that begins with that of a catalog model
with experts ("Qwen3_30B_a3B", "DeepSeek-V3 trimmed") stands for that model, except where a cell
says otherwise; what no column holds (head size, latent attention, windows) is the catalog's too.
"""

from __future__ import annotations

from collections.abc import Mapping

from parsim.model.reader import load_model_catalog
from parsim.model.transformer import TransformerSpec

_COLUMNS = {
    "n_layers": "num_layers",
    "hidden_size": "hidden_size",
    "n_heads": "num_attention_heads",
    "n_kv_heads": "num_key_value_heads",
    "ffn_hidden_size": "ffn_hidden_size",
    "vocab_size": "vocab_size",
    "n_experts": "num_experts",
    "moe_topk": "experts_per_token",
    "moe_ffn_hidden_size": "expert_ffn_hidden_size",
}
"""Column of the schema -> field of the spec."""


def known_mixture(name: str) -> TransformerSpec | None:
    """The catalog's mixture of experts whose name this one begins with; the longest such name."""
    wanted = _plain(name)
    candidates = [
        spec
        for key, spec in load_model_catalog().items()
        if spec.num_experts and wanted.startswith(_plain(key))
    ]
    return max(candidates, key=lambda spec: len(_plain(spec.name)), default=None)


_UNMODELLED = {
    "nemotron3": "of Nemotron 3 only Nano is known: the others route a projection of a token",
    "nemotronh": "the layers of Nemotron-H are not known",
    "qwen3next": "Qwen3-Next has gated delta-net layers, which are not modelled",
}
"""How names of models begin that no spec can express, and why."""


def unmodelled(name: str) -> str | None:
    """Why a model of this name cannot be predicted, if it is known that it cannot."""
    plain = _plain(name)
    return next((why for key, why in _UNMODELLED.items() if plain.startswith(key)), None)


def with_known_sizes(row: Mapping[str, str]) -> dict[str, str]:
    """The row with blank sizes of a known mixture filled in; any other row as it is."""
    spec = known_mixture(row.get("model", ""))
    if spec is None:
        return dict(row)
    sizes = {
        column: str(getattr(spec, field))
        for column, field in _COLUMNS.items()
        if not row.get(column)
    }
    return {**row, **sizes}


def is_mixture(row: Mapping[str, str]) -> bool:
    """Whether a row is of a mixture of experts: by its cells, or by its model's name."""
    return with_known_sizes(row).get("n_experts", "") not in ("", "0")


def _plain(name: str) -> str:
    """Letters and digits alone, small."""
    return "".join(filter(str.isalnum, name.lower()))
