"""An input of the fuzzer, and the shipped files that inputs are made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from random import Random

from parsim.scenario.schema.file import BLOCKS
from tests.commands import SCENARIOS
from tests.fuzz.mutations import mutated, value

SMALL_ONES = [path for path in SCENARIOS if "cpu" in path.stem or "8b-dgx" in path.stem]


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """Words of a command line, and the files that it reads: names to contents."""

    words: tuple[str, ...]
    files: Mapping[str, str | bytes] = field(default_factory=dict)


@cache
def text_of(path: Path) -> str:
    """A shipped file."""
    return path.read_text(encoding="utf-8")


def beside(scenario: Path) -> dict[str, str]:
    """The files that a scenario names, under their own names."""
    table = scenario.with_suffix(".csv")
    return {table.name: text_of(table)} if table.exists() else {}


def spoiled(random: Random, path: Path, also: str = "") -> dict[str, str]:
    """A spoiled scenario `s.yaml`, with more text at its end, and the files that it names."""
    return {"s.yaml": mutated(random, text_of(path) + also), **beside(path)}


def pairs(random: Random) -> tuple[str, ...]:
    """Fields with hostile values, as `--set` takes them."""
    return tuple(f"{key(random)}={value(random)}" for _ in range(random.choice((1, 1, 1, 2, 3))))


def key(random: Random) -> str:
    """A field of a scenario, in a few cases none."""
    block = random.choice([block for block in BLOCKS if "*" not in block])
    return ".".join((*block, random.choice([*BLOCKS[block].model_fields, "x"])))
