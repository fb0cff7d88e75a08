"""One walk of the dynamic program over a graph's operations, its states as rows of arrays.

states (S, L)   the layout of each of L tensors that are still to be read, by number
ways (W,)       the signatures of the next operation
total (S, W)    cost so far + the operation + changes of its inputs
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from math import inf

import numpy as np

from parsim.arrays import Array, Index, sorted_values
from parsim.layout.candidates import OnMesh, inputs_on, output_on
from parsim.layout.mesh import NdSbp
from parsim.model.graph.record import INPUT, Graph, Node
from parsim.sim.layouts.exchanges import Exchanges
from parsim.sim.layouts.prices import NodePrices

EQUAL = 1.0 + 1e-9
"""Costs that differ by less are the same."""

Ways = Mapping[str, Sequence[OnMesh]]
"""The signatures that each operation may have."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The cost of the best way found, what no way can beat, and the numbers of its signatures."""

    cost: float
    bound: float
    chosen: tuple[int, ...] = ()

    def or_else(self, other: Answer) -> Answer:
        """The cheaper of two answers of one search, within the tighter bound."""
        best = self if self.cost < other.cost else other
        return Answer(best.cost, min(max(self.bound, other.bound), best.cost), best.chosen)


@dataclass(slots=True)
class Changes:
    """Layouts by number, and what changes between them cost; searches of one graph share it."""

    exchanges: Exchanges
    numbers: dict[NdSbp, int] = field(default_factory=dict)
    tables: dict[tuple[object, ...], Array] = field(default_factory=dict)

    def number(self, layout: NdSbp) -> int:
        """The number of a layout."""
        return self.numbers.setdefault(layout, len(self.numbers))

    def of(self, tensor: str, sources: Sequence[int], wanted: Sequence[NdSbp]) -> Array:
        """Seconds from layouts by number to those wanted, (N, W); endless from all others."""
        targets = tuple(map(self.number, wanted))
        size, asked = self.exchanges.tensor_bytes(tensor), tensor in self.exchanges.asked
        key = (size, asked, tuple(sources), targets)
        if key not in self.tables:
            layouts = list(self.numbers)
            table = np.full((len(layouts), len(wanted)), inf)
            for source in sources:
                seconds = {
                    target: self.exchanges.change_seconds(tensor, layouts[source], layouts[target])
                    for target in dict.fromkeys(targets)
                }
                table[source] = [seconds[target] for target in targets]
            self.tables[key] = table
        return self.tables[key]


@dataclass(slots=True)
class Search:
    """The operations of a graph with their prices, ready to be walked along."""

    ways: Ways
    prices: NodePrices
    changes: Changes
    costs: list[Array] = field(init=False)
    outputs: list[Index] = field(init=False)
    rest: list[float] = field(init=False)
    live: list[tuple[str, ...]] = field(init=False)
    order: Mapping[str, int] = field(init=False)

    def __post_init__(self) -> None:
        """Price every signature by itself."""
        nodes = self.prices.graph.nodes
        self.costs = [
            np.array([self.prices.seconds(node, way) for way in self.ways[node.name]])
            for node in nodes
        ]
        self.outputs = [
            np.array([self.changes.number(output_on(way)) for way in self.ways[node.name]])
            for node in nodes
        ]
        least = (float(cost.min()) for cost in reversed(self.costs))
        self.rest = [*accumulate(least, initial=0.0)][::-1]
        self.live = list(_live(self.prices.graph))
        self.order = {node.name: number for number, node in enumerate(nodes)}

    @property
    def tried(self) -> int:
        """Signatures of all operations."""
        return sum(map(len, self.costs))

    def walk(self, width: int, known: float) -> Answer:
        """Take all operations with so many states; those that cannot come below `known` go."""
        cost, states = np.zeros(1), np.zeros((1, 0), dtype=np.int64)
        bound, history = known, list[tuple[Index, Index]]()
        for number, node in enumerate(self.prices.graph.nodes):
            total = self._totals(number, node, cost, states)
            hopeful = np.flatnonzero(total.ravel() + self.rest[number + 1] < known)
            if not len(hopeful):
                return Answer(inf, bound)
            keys = self._keys(number, node, states)
            picked = _cheapest(total.ravel()[hopeful], keys.ravel()[hopeful])
            rows = hopeful[picked]
            if len(rows) > width:
                bound = min(bound, float(total.ravel()[rows[width]]) + self.rest[number + 1])
                rows = rows[:width]
            before, way = np.divmod(rows, total.shape[1])
            cost = total.ravel()[rows]
            states = self._states(number, node, states[before], way)
            history.append((before, way))
        return Answer(float(cost[0]), min(bound, float(cost[0])), _traced(history))

    def _totals(self, number: int, node: Node, cost: Array, states: Index) -> Array:
        """Cost behind an operation, of each state and signature, (S, W)."""
        total = cost[:, None] + self.costs[number][None, :]
        before = self.live[number - 1] if number else ()
        for position, name in enumerate(node.inputs):
            if name != INPUT:  # what enters the model is where it is wanted
                total = total + self._changes(node, position)[states[:, before.index(name)]]
        return np.asarray(total)

    def _changes(self, node: Node, position: int) -> Array:
        """Seconds from each layout of an input to what each signature wants, (N, W)."""
        wanted = [inputs_on(way, position) for way in self.ways[node.name]]
        sources = sorted_values(self.outputs[self.order[node.inputs[position]]]).tolist()
        return self.changes.of(node.inputs[position], sources, wanted)

    def _kept(self, number: int) -> list[int]:
        """Places of the live tensors before an operation that live on behind it."""
        before = self.live[number - 1] if number else ()
        return [before.index(name) for name in self.live[number] if name in before]

    def _keys(self, number: int, node: Node, states: Index) -> Index:
        """A number for each set of layouts that lives on, (S, W)."""
        kept = states[:, self._kept(number)]
        rows = np.zeros(len(states), dtype=np.int64)
        if kept.shape[1]:
            rows = np.unique(kept, axis=0, return_inverse=True)[1].reshape(-1)
        leaves = self.outputs[number] * (node.name in self.live[number])
        return np.asarray(rows[:, None] * len(self.changes.numbers) + leaves[None, :])

    def _states(self, number: int, node: Node, states: Index, way: Index) -> Index:
        kept = states[:, self._kept(number)]
        if node.name not in self.live[number]:
            return kept
        return np.concatenate([kept, self.outputs[number][way][:, None]], axis=1)

    def signatures(self, answer: Answer) -> dict[str, OnMesh]:
        """What an answer says of each operation."""
        nodes = self.prices.graph.nodes
        return {
            node.name: self.ways[node.name][chosen]
            for node, chosen in zip(nodes, answer.chosen, strict=True)
        }


def _cheapest(total: Array, keys: Index) -> Index:
    """The entry of each key that costs least, in the order of their costs."""
    order = np.argsort(total, kind="stable")
    first = np.unique(keys[order], return_index=True)[1]
    return np.asarray(order[np.sort(first)])


def _traced(history: Sequence[tuple[Index, Index]]) -> tuple[int, ...]:
    """The signature of each operation on the way to the first state."""
    state, chosen = 0, []
    for before, way in reversed(history):
        chosen.append(int(way[state]))
        state = int(before[state])
    return tuple(reversed(chosen))


def _live(graph: Graph) -> Iterator[tuple[str, ...]]:
    """Behind each operation the tensors that later ones read, in order."""
    last, live = graph.last_uses(), list[str]()
    for number, node in enumerate(graph.nodes):
        live = [name for name in (*live, node.name) if last[name] > number]
        yield tuple(live)
