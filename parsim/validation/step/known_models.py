"""Models of the catalog by the names that tables give them.

A name that begins with that of a catalog model stands for it. Letters and digits count, and where
one number ends and the next begins: "GPT 22B" is no GPT-2, "Qwen-27B" no Qwen2 7B. What no column
of a table holds (head size, latent attention, windows, biases) is then the catalog's.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache

from parsim.model.reader import load_model_catalog
from parsim.model.transformer import TransformerSpec, build_transformer

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
