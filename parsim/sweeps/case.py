"""The cases of a sweep: a scenario file, what is changed in it, and how a table calls that."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from pathlib import Path
from typing import Final

from parsim.errors import InputError, shown
from parsim.files import read_text
from parsim.scenario.of_search import check_of_search
from parsim.sweeps.named_files import contents_named
from parsim.units import whole_number

MOST_CASES: Final = 10_000
"""A day of simulations of a second; more is a slip of the pen."""

NODES, BATCH = "cluster.nodes", "training.global_batch_size"

Over = tuple[str, tuple[str, ...]]
"""A field by its dotted name, and the values that it takes, as a scenario writes them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepCase:
    """One scenario: its file, overrides as YAML text, and the values that tell it from others.

    `best` asks for the best plan in place of the file's own.
    """

    path: Path
    values: Mapping[str, str]
    overrides: Mapping[str, str]
    best: bool = False

    @property
    def digest(self) -> str:
        """Twelve characters that differ where what decides its numbers does.

        That are the file, overrides, question, files that they name, and parsim's version.
        """
        from parsim import __version__

        texts = (read_text(self.path), *self.overrides.values())
        named = contents_named(texts, (self.path.parent, Path()))
        overrides = repr(sorted(self.overrides.items()))
        parts = (__version__, texts[0], overrides, str(self.best), *named)
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:12]


def read_over(text: str) -> Over:
    """Read `KEY=A,B,C`; commas within brackets and quotes do not part values.

    Raises:
        InputError: no key, no value, or the same value twice.
    """
    key, sign, rest = text.partition("=")
    values = tuple(part.strip() for part in _parts(rest))
    if not sign or not key.strip() or not all(values):
        raise InputError(
            f"--over '{shown(text)}' must be KEY=A,B,..., e.g. --over cluster.nodes=1,2,4"
        )
    if len(set(values)) < len(values):
        raise InputError(f"--over '{shown(text)}' has a value twice")
    return key.strip(), values


def _parts(text: str) -> list[str]:
    """The text cut at commas outside of [] and {}."""
    return re.split(r",(?![^\[{]*[\]}])", text)


def cases_over(
    path: Path,
    overs: Sequence[Over],
    overrides: Mapping[str, str],
    *,
    best: bool = False,
    weak: bool = False,
) -> tuple[SweepCase, ...]:
    """Every combination of the values, the first field slowest.

    Args:
        path: the scenario.
        overs: fields and their values.
        overrides: what is changed in all cases.
        best: search the best plan in each case.
        weak: the global batch grows with the nodes, from that of the first node count.

    Raises:
        InputError: a field twice, too many cases, weak scaling without node counts, or a field of
            the plan where the best one is searched.
    """
    keys = [key for key, _ in overs]
    if len(set(keys)) < len(keys):
        raise InputError("--over names a field twice; give all its values in one")
    number = prod(len(values) for _, values in overs)
    if number > MOST_CASES:
        raise InputError(f"{number:,} cases are more than {MOST_CASES:,}; sweep fewer values")
    if best:
        check_of_search([*overrides, *keys], None)
    scale = _weak_scaling(path, dict(overs), overrides) if weak else None
    plan = {"plan": "null"} if best else {}
    cases = []
    for combination in product(*(values for _, values in overs)):
        values = dict(zip(keys, combination, strict=True))
        batch = {} if scale is None else {BATCH: str(scale * int(values[NODES]))}
        changed = {**overrides, **plan, **values, **batch}
        cases.append(SweepCase(path=path, values={**values, **batch}, overrides=changed, best=best))
    return tuple(cases)


def _weak_scaling(
    path: Path, overs: Mapping[str, Sequence[str]], overrides: Mapping[str, str]
) -> int:
    """Sequences a node: the batch of the scenario over its first node count."""
    from parsim.scenario import load_scenario

    nodes = overs.get(NODES, ())
    if not nodes or not all(map(whole_number, nodes)):
        raise InputError("--weak needs node counts: --over cluster.nodes=1,2,4")
    if BATCH in overs:
        raise InputError(f"--weak sets {BATCH}; do not sweep it too")
    batch = load_scenario(path, {**overrides, "plan": None, "search": "{}"}).global_batch_size
    if batch % int(nodes[0]):
        raise InputError(
            f"--weak: {BATCH}={batch}, that of the first node count, is not divisible by "
            f"cluster.nodes={nodes[0]}"
        )
    return batch // int(nodes[0])


def cases_of_files(paths: Sequence[Path], overrides: Mapping[str, str]) -> tuple[SweepCase, ...]:
    """A case a file, each with its own plan."""
    return tuple(
        SweepCase(path=path, values={"file": str(path)}, overrides=overrides) for path in paths
    )


def part_of(cases: Sequence[SweepCase], text: str) -> tuple[SweepCase, ...]:
    """The cases of one of several machines: `2/4` is every fourth, from the second.

    Raises:
        InputError: no such part.
    """
    match = re.fullmatch(r"(\d{1,5})/(\d{1,5})", text, re.ASCII)
    if match is None or not 1 <= int(match[1]) <= int(match[2]):
        raise InputError(f"--part '{shown(text)}' must be one of several, e.g. 2/4")
    return tuple(cases[int(match[1]) - 1 :: int(match[2])])
