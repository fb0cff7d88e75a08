"""The cheapest signatures of a graph's operations on a mesh, by dynamic programming.

    cost = sum over operations of their passes, exchanges inside and sums of gradients
         + sum over inputs of the change from what the tensor is to what the operation wants

Operations are taken in order. What is behind depends on what is ahead by the layouts of tensors
that are still to be read alone, so of all ways to the same layouts the cheapest is kept: on a chain
as many states as a tensor has layouts. No way on costs less than every operation's cheapest
signature without any change: a state that cannot come below the best answer so far is dropped.
Where states are more than are kept, the cheapest go on, and what the others could have led to at
best is the bound: the answer is within it, or proven the best where the bound is its own cost.

Source: dynamic programming over layouts as in Jia et al. 2018 (arXiv:1802.04924) and OneFlow's
compiler (arXiv:2110.15032, section 3.2). Leaves out: gradients' sums and changes of layout that run
beside compute, which the step's program has.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from math import inf

from parsim.layout.boxing import Step
from parsim.layout.candidates import OnMesh, inputs_on, output_on
from parsim.layout.laid import entering
from parsim.layout.sbp import NdSbp
from parsim.model.graph.kept import owners
from parsim.model.graph.record import INPUT, Graph, Node
from parsim.model.graph.texts import Embedding
from parsim.sim.layouts.exchanges import Exchanges
from parsim.sim.layouts.prices import NodePrices

FEW, MANY = 24, 600
"""States that are kept for a first answer, and where the best is looked for."""
MOST_TRIED = 400_000
"""Signatures looked at in all, a second or two; of large graphs fewer states are kept."""
EQUAL = 1.0 + 1e-9
"""Costs that differ by less are the same."""

Ways = Mapping[str, Sequence[OnMesh]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """Signatures, the changes between, their cost in seconds, and what no others can beat."""

    signatures: Mapping[str, OnMesh]
    changes: Mapping[tuple[str, int], tuple[Step, ...]]
    seconds: float
    bound: float
    free: int

    @property
    def proven(self) -> bool:
        """Whether no other signatures cost less."""
        return self.seconds <= self.bound * EQUAL


@dataclass(slots=True)
class _State:
    """What tensors that are still to be read are, at which cost, and how it came about."""

    cost: float
    live: tuple[NdSbp, ...]
    way: OnMesh | None = None
    before: _State | None = None


def choose(ways: Ways, prices: NodePrices) -> Chosen:
    """The cheapest of all combinations of these signatures.

    Operations that share a table have one layout of it: each layout is tried by itself.
    """
    graph = prices.graph
    answers = [_Search(tied, prices).run() for tied in _tied(graph, ways)]
    best = min(answers, key=lambda answer: answer[0].cost)[0]
    found = _signatures(graph, best)
    free = sum(len(options) > 1 for options in ways.values())
    return Chosen(
        signatures=found,
        changes=dict(_changes(graph, found, prices.exchanges)),
        seconds=best.cost,
        bound=min(best.cost, *(bound for _, bound in answers)),
        free=free,
    )


def _tied(graph: Graph, ways: Ways) -> Iterator[Ways]:
    """The signatures for each layout of a shared table; all of them where nothing is shared."""
    shared = owners(graph)
    groups: dict[str, list[str]] = {}
    for user, owner in shared.items():
        groups.setdefault(owner, [owner]).append(user)
    if not groups:
        yield ways
        return
    nodes = {node.name: node for node in graph.nodes}
    users = [nodes[name] for names in groups.values() for name in names]
    for table in dict.fromkeys(_table(users[0], way) for way in ways[users[0].name]):
        limited = dict(ways)
        for node in users:
            limited[node.name] = [way for way in ways[node.name] if _table(node, way) == table]
        if all(limited.values()):
            yield limited


def _table(node: Node, way: OnMesh) -> tuple[str, ...]:
    """What devices have of a shared table: all, rows of it, or columns.

    A product's weight is the table turned round: its columns are the table's rows.
    """
    looked_up = {"table rows": "rows", "columns": "columns"}
    turned = {"columns": "rows", "inputs": "columns"}
    words = looked_up if isinstance(node.operation, Embedding) else turned
    return tuple(words.get(signature.word, "whole") for signature in way)


def _signatures(graph: Graph, end: _State) -> dict[str, OnMesh]:
    found: dict[str, OnMesh] = {}
    state: _State | None = end
    for node in reversed(graph.nodes):
        if state is None or state.way is None:
            raise RuntimeError("a search of layouts lost its way")
        found[node.name] = state.way
        state = state.before
    return {node.name: found[node.name] for node in graph.nodes}


def _changes(
    graph: Graph, signatures: Mapping[str, OnMesh], exchanges: Exchanges
) -> Iterator[tuple[tuple[str, int], tuple[Step, ...]]]:
    mesh = exchanges.mesh
    for node in graph.nodes:
        for number, name in enumerate(node.inputs):
            source = entering(mesh) if name == INPUT else output_on(signatures[name])
            steps = exchanges.steps(name, source, inputs_on(signatures[node.name], number))
            if steps:
                yield (node.name, number), steps


@dataclass(slots=True)
class _Search:
    """One search: an answer with few states, then the best or as good as many give."""

    ways: Ways
    prices: NodePrices
    costs: dict[str, list[float]] = field(init=False)
    rest: list[float] = field(init=False)
    live: list[tuple[str, ...]] = field(init=False)

    def __post_init__(self) -> None:
        """Price every signature by itself."""
        graph = self.prices.graph
        self.costs = {
            node.name: [self.prices.seconds(node, way) for way in self.ways[node.name]]
            for node in graph.nodes
        }
        least = [min(self.costs[node.name]) for node in graph.nodes]
        self.rest = [*accumulate(reversed(least), initial=0.0)][::-1]
        self.live = list(_live(graph))

    def run(self) -> tuple[_State, float]:
        """The best state behind the last operation, and what no way can beat."""
        first, bound = self._walk(FEW, inf)
        if bound * EQUAL >= first.cost:
            return first, bound
        tried = sum(len(options) for options in self.ways.values())
        better, bound = self._walk(max(FEW, min(MANY, MOST_TRIED // tried)), first.cost)
        return (better if better.cost < first.cost else first), min(bound, first.cost)

    def _walk(self, width: int, known: float) -> tuple[_State, float]:
        """Take all operations with so many states; states that cannot beat `known` are dropped."""
        states, bound = [_State(0.0, ())], known
        best = _State(inf, ())
        for number, node in enumerate(self.prices.graph.nodes):
            reached = self._behind(number, node, states, known)
            states = sorted(reached.values(), key=lambda state: state.cost)
            for left_out in states[width : width + 1]:
                bound = min(bound, left_out.cost + self.rest[number + 1])
            states = states[:width]
            if not states:
                return best, bound
        best = states[0]
        return best, min(bound, best.cost)

    def _behind(
        self, number: int, node: Node, states: Sequence[_State], known: float
    ) -> dict[tuple[NdSbp, ...], _State]:
        """The cheapest way to each set of layouts of live tensors behind an operation."""
        before = self.live[number - 1] if number else ()
        places = [before.index(name) if name in before else -1 for name in node.inputs]
        kept = [before.index(name) for name in self.live[number] if name in before]
        leaves = node.name in self.live[number]
        reached: dict[tuple[NdSbp, ...], _State] = {}
        for state in states:
            for way, cost in zip(self.ways[node.name], self.costs[node.name], strict=True):
                total = state.cost + cost + self._changed(node, way, state, places)
                if total + self.rest[number + 1] >= known:
                    continue
                live = tuple(state.live[place] for place in kept)
                live = (*live, output_on(way)) if leaves else live
                if live not in reached or total < reached[live].cost:
                    reached[live] = _State(total, live, way, state)
        return reached

    def _changed(self, node: Node, way: OnMesh, state: _State, places: Sequence[int]) -> float:
        """Seconds of the changes before an operation."""
        seconds = 0.0
        for number, place in enumerate(places):
            if place >= 0:  # what enters the model is where it is wanted
                wanted, here = inputs_on(way, number), state.live[place]
                if wanted != here:
                    name = node.inputs[number]
                    seconds += self.prices.exchanges.change_seconds(name, here, wanted)
        return seconds


def _live(graph: Graph) -> Iterator[tuple[str, ...]]:
    """Behind each operation the tensors that later ones read, in order."""
    last, live = graph.last_uses(), list[str]()
    for number, node in enumerate(graph.nodes):
        live = [name for name in (*live, node.name) if last[name] > number]
        yield tuple(live)
