"""A layout in words, and as plain data."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from parsim.layout.laid import Laid
from parsim.sim.layouts.choose import Chosen

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
