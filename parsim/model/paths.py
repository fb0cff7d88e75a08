"""What of a model may run at the same time: its operators as paths, and the branches they form.

    input ──▶ stem ──┬──▶ 1x1 ────────────┬──▶ join ──▶ ...
                     ├──▶ 1x1 ──▶ 5x5 ────┤
                     └──▶ pool ──▶ 1x1 ───┘

A path is a longest run of operations in which each reads the one before it alone and is read by the
next one alone; here stem, three more, and the join. Path i hangs on the last path that every way to
it goes through (its dominator): the branches and the join hang on the stem. What hangs on a path
that is placed on a device goes there with it, unless it is placed itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from parsim.errors import PlanError, alternatives, shown
from parsim.model.layer import Layer

FIRST = -1
"""Number that stands for what enters a model, which every device has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Path:
    """A run of operations, called by the first of them.

    `leaves` are the values of a sample at its end; `takes` are the numbers of the paths that it
    reads, in a model's order. `asks` says that backward needs the gradient of what leaves, because
    something at or before it has parameters.
    """

    nodes: tuple[str, ...]
    layer: Layer
    takes: tuple[int, ...]
    leaves: int
    asks: bool

    @property
    def name(self) -> str:
        """The first operation's."""
        return self.nodes[0]


@dataclass(frozen=True)
class Branching:
    """The paths of a model, and how they hang on one another."""

    paths: tuple[Path, ...]

    @cached_property
    def parents(self) -> tuple[int, ...]:
        """The path on which each hangs; `FIRST` where it hangs on the input alone."""
        parents: list[int] = []
        depth = {FIRST: 0}
        for number, path in enumerate(self.paths):
            meeting = path.takes[0] if path.takes else FIRST
            for other in path.takes[1:]:
                meeting = _meeting(meeting, other, parents, depth)
            parents.append(meeting)
            depth[number] = depth[meeting] + 1
        return tuple(parents)

    @cached_property
    def before(self) -> tuple[int, ...]:
        """The paths that must run before each, as bits."""
        sets: list[int] = []
        for path in self.paths:
            bits = 0
            for other in path.takes:
                if other != FIRST:
                    bits |= sets[other] | 1 << other
            sets.append(bits)
        return tuple(sets)

    @cached_property
    def branches(self) -> tuple[int, ...]:
        """Paths with work beside which other work may run."""
        working = [n for n, path in enumerate(self.paths) if path.layer.operators]
        bits = sum(1 << number for number in working)
        after = [0] * len(self.paths)
        for number in reversed(range(len(self.paths))):
            for other in self.paths[number].takes:
                if other != FIRST:
                    after[other] |= after[number] | 1 << number
        return tuple(n for n in working if bits & ~(self.before[n] | after[n] | 1 << n))

    @cached_property
    def width(self) -> int:
        """The most paths with work of which none waits for another (Dilworth's theorem).

        Paths less the pairs of a largest matching of paths with one that must run before.
        """
        if not self.branches:
            return 1
        among = sum(1 << number for number in self.branches)
        pairs: dict[int, int] = {}
        matched = sum(self._match(number, [among], pairs) for number in self.branches)
        return len(self.branches) - matched

    def _match(self, number: int, unseen: list[int], pairs: dict[int, int]) -> bool:
        """Find a path before this one a partner, moving others on where that helps."""
        while bits := self.before[number] & unseen[0]:
            other = bits.bit_length() - 1
            unseen[0] &= ~(1 << other)
            if other not in pairs or self._match(pairs[other], unseen, pairs):
                pairs[other] = number
                return True
        return False

    @property
    def longest_share(self) -> float:
        """The share of the model's FLOPs on the way that has the most of them."""
        flops = [float(path.layer.forward_flops(1)) for path in self.paths]
        ways: list[float] = []
        for path, alone in zip(self.paths, flops, strict=True):
            ways.append(alone + max((ways[n] for n in path.takes if n != FIRST), default=0.0))
        return max(ways) / max(sum(flops), 1.0)

    def numbered(self, name: str) -> int:
        """The path that a user names: by its first operation, or by how a branch's names begin.

        Raises:
            PlanError: there is none, or several that do not hang on one of them.
        """
        for number, path in enumerate(self.paths):
            if path.name == name:
                return number
        within = [n for n, p in enumerate(self.paths) if p.name.startswith(f"{name}.")]
        if within and all(self._hangs(number, within[0]) for number in within):
            return within[0]
        names = [self.paths[number].name for number in within or self.branches]
        if within:
            raise PlanError(
                f"strategy.branches: '{shown(name)}' begins the names of {len(within)} branches; "
                f"name one: {', '.join(names[:8])}"
            )
        rest = alternatives(name, names)
        raise PlanError(f"strategy.branches: '{shown(name)}' is no branch of the model{rest}")

    def _hangs(self, number: int, on: int) -> bool:
        """Whether a path hangs on another, or is it."""
        while number > on:
            number = self.parents[number]
        return number == on

    def devices(self, stated: Mapping[int, int]) -> tuple[int, ...]:
        """The device of each path: as stated, else that of the path on which it hangs, else 0."""
        devices: list[int] = []
        for number, parent in enumerate(self.parents):
            inherited = 0 if parent == FIRST else devices[parent]
            devices.append(stated.get(number, inherited))
        return tuple(devices)


def _meeting(left: int, right: int, parents: Sequence[int], depth: Mapping[int, int]) -> int:
    """The last path on which both hang."""
    while left != right:
        if depth[left] >= depth[right]:
            left = parents[left]
        else:
            right = parents[right]
    return left


def runs(takes: Sequence[tuple[int, ...]]) -> list[list[int]]:
    """Operations sorted into paths, given the numbers of those that each reads."""
    readers: dict[int, int] = {}
    for inputs in takes:
        for source in inputs:
            readers[source] = readers.get(source, 0) + 1
    sorted_: list[list[int]] = []
    run_of: dict[int, list[int]] = {}
    for number, inputs in enumerate(takes):
        alone = len(inputs) == 1 and inputs[0] != FIRST and readers[inputs[0]] == 1
        if alone:
            run_of[number] = run_of[inputs[0]]
        else:
            run_of[number] = []
            sorted_.append(run_of[number])
        run_of[number].append(number)
    return sorted_
