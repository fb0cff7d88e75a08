"""The cheapest signatures of a graph's operations by dynamic programming, also in words.

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

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from math import inf

from parsim.layout.boxing import Step
from parsim.layout.candidates import OnMesh, inputs_on, output_on
from parsim.layout.laid import Laid, entering
from parsim.model.graph.build import owners
from parsim.model.graph.record import INPUT, Graph, Node
from parsim.model.graph.texts import Embedding
from parsim.sim.layouts.exchanges import Exchanges
from parsim.sim.layouts.prices import NodePrices
from parsim.sim.layouts.search import EQUAL, Changes, Search, Ways

FEW, MANY = 16, 2_000
"""States that are kept for a first answer, and where the best is looked for."""
MOST_TRIED = 10_000_000
"""States with a signature behind them that are looked at in all, a second or so."""


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


def choose(ways: Ways, prices: NodePrices) -> Chosen:
    """The cheapest of all combinations of these signatures.

    Operations that share a table have one layout of it: each layout is tried by itself.
    """
    graph = prices.graph
    shared = Changes(prices.exchanges)
    searches = [Search(tied, prices, shared) for tied in _tied(graph, ways)]
    answers = [search.walk(FEW, inf) for search in searches]
    least = min(answer.cost for answer in answers)
    width = min(MANY, MOST_TRIED // max(sum(search.tried for search in searches), 1))
    for number, search in enumerate(searches):
        if answers[number].bound * EQUAL < least and width > FEW:
            better = search.walk(width, least)
            answers[number] = better.or_else(answers[number])
            least = min(least, answers[number].cost)
    best = min(range(len(answers)), key=lambda number: answers[number].cost)
    signatures = searches[best].signatures(answers[best])
    return Chosen(
        signatures=signatures,
        changes=dict(_changes(graph, signatures, prices.exchanges)),
        seconds=answers[best].cost,
        bound=min(least, *(answer.bound for answer in answers)),
        free=sum(len(options) > 1 for options in ways.values()),
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


MOST_RUNS = 12
"""Runs of operations that a note lists; documents have all operations."""


def layout_notes(laid: Laid, chosen: Chosen) -> Iterator[str]:
    """What runs of operations go by on each axis, and how far that may be from the cheapest."""
    how = _how(chosen)
    for axis, name in enumerate(laid.mesh.names):
        yield f"layout on {name} ({how}): {_in_short(laid, axis)}"


def _how(chosen: Chosen) -> str:
    if not chosen.free:
        return "as stated"
    if chosen.proven:
        return f"the cheapest for {chosen.free} of {len(chosen.signatures)} operations, proven"
    beyond = 100 * (chosen.seconds / chosen.bound - 1.0)
    return f"the best found, within {beyond:.1f} % of the cheapest"


def _in_short(laid: Laid, axis: int) -> str:
    """Runs of operations that go by the same; what follows a split is no run of its own."""
    ways = [(node.name, laid.signatures[node.name][axis].word) for node in laid.graph.nodes]
    runs = [(word, [name for name, _ in run]) for word, run in groupby(ways, lambda way: way[1])]
    shown = [
        f"{names[0]}{f'..{names[-1]}' if len(names) > 1 else ''} {word}"
        for word, names in runs
        if word != "dim"
    ]
    rest = f" and {len(shown) - MOST_RUNS} runs more" if len(shown) > MOST_RUNS else ""
    return ", ".join(shown[:MOST_RUNS]) + rest


def layout_document(laid: Laid, chosen: Chosen) -> dict[str, object]:
    """The mesh, the cost with its bound, and every operation's signatures and changes."""
    return {
        "mesh": dict(laid.mesh.axes),
        "search_s": chosen.seconds,
        "search_bound_s": chosen.bound,
        "proven": chosen.proven,
        "operations": [
            {
                "name": node.name,
                "signatures": [str(part) for part in laid.signatures[node.name]],
                "changes": [
                    f"{laid.mesh.names[step.axis]}: {step.source} to {step.target}"
                    for number in range(len(node.inputs))
                    for step in laid.changes.get((node.name, number), ())
                ],
            }
            for node in laid.graph.nodes
        ],
    }
