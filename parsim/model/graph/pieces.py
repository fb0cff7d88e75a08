"""Finds what makes layers and edges no single graph: a name used twice, or separate pieces."""

from __future__ import annotations

from collections.abc import Sequence

from parsim.errors import shown


def first_apart(count: int, pairs: Sequence[tuple[int, int]]) -> int | None:
    """The first of so many layers that no edges join to layer 0, whichever way; None: all are."""
    piece = list(range(count))

    def root(i: int) -> int:
        while piece[i] != i:
            piece[i] = i = piece[piece[i]]
        return i

    for first, second in pairs:
        piece[root(first)] = root(second)
    return next((i for i in range(count) if root(i) != root(0)), None)


def in_pieces(name: str, first: str) -> str:
    """What is wrong with a layer that hangs on nothing."""
    return (
        f"node {shown(name)} does not hang together with {shown(first)}; allowed: a graph in one "
        f"piece"
    )


def twice(name: str) -> str:
    """What is wrong with a name of two layers."""
    return f"node {shown(name)} stands there twice"
