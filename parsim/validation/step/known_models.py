"""Models of the catalog by the names that tables give them, and sizes that a row leaves blank.

A name that begins with that of a catalog model stands for it. Letters and digits count, and where
one number ends and the next begins: "GPT 22B" is no GPT-2, "Qwen-27B" no Qwen2 7B. What no column
of a table holds (head size, latent attention, windows, biases) is then the catalog's.

Sizes that a row leaves blank: a known model's are looked up, others follow from the family.

    looked up   layers, width, heads, key-value heads, feed-forward width, vocabulary, experts: of
                the catalog's model with the row's name, unless the row states another width
    derived     feed-forward width 4 h where the family's MLP has no gate, the family's vocabulary

Each has its reason beside it, which `parsim validate -v` prints.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache

from parsim.model.reader import load_model_catalog
from parsim.model.transformer import TransformerSpec, build_transformer
from parsim.units import whole_number
from parsim.validation.step.model_family import MIXTURE, model_family

ALIASES = {
    "gpt-530b": "megatron-530b",
    "mt-nlg-530b": "megatron-530b",
    "llama3.1-8b": "llama3-8b",
    "llama3.1-70b": "llama3-70b",
    "llama3.3-70b": "llama3-70b",
    "llama3-405b": "llama3.1-405b",
    "deepseek-v3.1": "deepseek-v3",
}
"""Names under which a model of the same sizes goes.

Sources: arXiv:2407.21783, table 3 (one herd of Llama 3, 3.1 and later 3.3); arXiv:2201.11990,
section 3 (MT-NLG, 105 layers of 20480)."""

SIZE_OFF = 0.25
"""How far the parameters in a model's name may be from those of the catalog's model, as a share:
names round, and leave out embeddings."""

_SIZE = re.compile(r"(\d+(?:\.\d+)?)([bm])(?![b-z]|a[a-z])")


def known_model(name: str) -> TransformerSpec | None:
    """The catalog's model whose name this one begins with; the longest such name."""
    wanted = _plain(name)
    candidates = [key for key in _names() if _begins(wanted, key)]
    key = max(candidates, key=len, default=None)
    return None if key is None else _names()[key]


def known_mixture(name: str) -> TransformerSpec | None:
    """The catalog's model of this name if it has experts."""
    spec = known_model(name)
    return spec if spec is not None and spec.num_experts else None


def is_named_after(name: str, spec: TransformerSpec) -> bool:
    """Whether the size in the rest of a name, if there is one, is the model's: 774M is no GPT-2."""
    wanted = _plain(name)
    used = max((key for key in _names() if _begins(wanted, key)), key=len, default="")
    printed = _SIZE.search(wanted[len(used) :])
    if printed is None:
        return True
    parameters = float(printed[1]) * (1e9 if printed[2] == "b" else 1e6)
    return abs(parameters / _parameters(spec) - 1.0) <= SIZE_OFF


def is_mixture(row: Mapping[str, str]) -> bool:
    """Whether a row is of a mixture of experts: by its cells, or by its model's name."""
    stated = row.get("n_experts", "")
    return stated != "0" if stated else known_mixture(row.get("model", "")) is not None


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


@cache
def _names() -> Mapping[str, TransformerSpec]:
    """Every name of every model of the catalog, plain."""
    catalog = load_model_catalog()
    names = {_plain(name): spec for name, spec in catalog.items()}
    return {**names, **{_plain(alias): catalog[name] for alias, name in ALIASES.items()}}


@cache
def _parameters(spec: TransformerSpec) -> int:
    return build_transformer(spec).parameters


def _begins(wanted: str, key: str) -> bool:
    """Whether a name begins with a model's, at the end of a number."""
    rest = wanted[len(key) :]
    return wanted.startswith(key) and not (key[-1].isdigit() and re.match(r"\.?\d", rest))


def _plain(name: str) -> str:
    """Small letters and digits, points inside numbers, and a dash between two numbers."""
    spaced = re.sub(r"[^a-z0-9.]+|\.(?!\d)|(?<!\d)\.", " ", name.lower())
    return re.sub(r"(?<=\d) (?=\d)", "-", re.sub(r" +", " ", spaced)).replace(" ", "")


Filled = dict[str, tuple[str, str]]
"""Column -> the cell that it gets, and why."""

SIZES = {
    "n_layers": "num_layers",
    "hidden_size": "hidden_size",
    "n_heads": "num_attention_heads",
    "n_kv_heads": "num_key_value_heads",
    "ffn_hidden_size": "ffn_hidden_size",
    "vocab_size": "vocab_rows",
}
"""Column of the schema -> what the spec calls it."""

EXPERTS = {
    "n_experts": "num_experts",
    "moe_topk": "experts_per_token",
    "moe_ffn_hidden_size": "expert_ffn_hidden_size",
}
"""Sizes that mixtures of experts have beside them."""


def blank_sizes(row: Mapping[str, str]) -> Filled:
    """The cells that fill a row's blanks; a blank that nothing is known of stays."""
    filled = dict(_looked_up(row))
    return {**filled, **dict(_derived({**row, **cells(filled)}))}


def cells(filled: Filled) -> dict[str, str]:
    """The filled cells without their reasons."""
    return {column: cell for column, (cell, _) in filled.items()}


def _looked_up(row: Mapping[str, str]) -> Iterator[tuple[str, tuple[str, str]]]:
    name = row.get("model", "")
    spec = known_model(name)
    if spec is None:
        return
    columns = {**(SIZES if _is_that(row, spec) else {}), **(EXPERTS if spec.num_experts else {})}
    for column, field in columns.items():
        if not row.get(column):
            yield column, (str(getattr(spec, field)), f"{spec.name} of the catalog")


def _is_that(row: Mapping[str, str], spec: TransformerSpec) -> bool:
    """Whether a row is of this very model: by its width, else by a size in its name."""
    if row.get("hidden_size"):
        return _whole(row["hidden_size"]) == spec.hidden_size
    return is_named_after(row["model"], spec)


def _whole(cell: str) -> int | None:
    """A count as tables write it, 4096 or 4096.0; None for anything else, which is told later."""
    head, _, tail = cell.partition(".")
    return None if tail.strip("0") else whole_number(head)


def _derived(row: Mapping[str, str]) -> Iterator[tuple[str, tuple[str, str]]]:
    heads, groups = row.get("n_heads", ""), row.get("n_kv_heads", "")
    family = model_family(row.get("model", ""), grouped_queries=groups not in ("", heads))
    mixture = row.get("n_experts", "") not in ("", "0")
    if not groups and heads:
        yield "n_kv_heads", (heads, "no grouped queries are stated")
    width = _whole(row.get("hidden_size", ""))
    if not row.get("ffn_hidden_size") and family.plain_mlp and not mixture and width:
        yield "ffn_hidden_size", (str(4 * width), f"4 x hidden_size, as of family {family.name}")
    if not row.get("vocab_size"):
        kind = MIXTURE if mixture else family
        yield "vocab_size", (str(kind.vocabulary), f"family {kind.name}")
