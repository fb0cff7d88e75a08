"""The record of how a Hugging Face family names the modules in its files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

QKV = ("attention.q", "attention.k", "attention.v")
GATED = ("mlp.gate", "mlp.fc1")


@dataclass(frozen=True, slots=True, kw_only=True)
class FamilyNames:
    """Names of modules in a family's files; those of a layer stand behind `layer`.

    `base` is the prefix that files of the model without its head leave out. Matrices of `turned`
    are stored (inputs, outputs); those of each of `joined` lie behind one another in one tensor,
    or with `by_head` each head's rows do. Files of other versions have `older` words in place of
    others.
    """

    base: str
    layer: str
    ends: Mapping[str, str]
    inside: Mapping[str, str]
    turned: bool = False
    joined: tuple[tuple[str, ...], ...] = ()
    by_head: bool = False
    older: Mapping[str, str] = field(default_factory=dict)
