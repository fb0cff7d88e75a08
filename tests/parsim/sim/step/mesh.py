"""Communicators and messages of a mesh of ranks, for the tests of folding."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from parsim.sim.step.folding import Communicator, Edge


def mesh_links(
    pp: int, dp: int, tp: int, *, cp: int = 1, wrap: bool = False
) -> tuple[tuple[Communicator, ...], tuple[Edge, ...]]:
    """Communicators and messages of a mesh, in the default order of ranks: tp, cp, dp, pp.

    Gradients are reduced over dp and cp together, so that "dp" communicators span both.

    Args:
        pp: pipeline ranks.
        dp: replicas.
        tp: tensor-parallel ranks.
        cp: context-parallel ranks, which exchange keys and values too.
        wrap: whether the last pipeline rank also sends to the first (several chunks a rank).
    """
    mesh = np.arange(pp * dp * cp * tp).reshape(pp, dp * cp, tp)
    rows = {
        "tp": mesh.reshape(-1, tp),
        "dp": mesh.transpose(0, 2, 1).reshape(-1, dp * cp),
        "world": mesh.reshape(1, -1),
    }
    if cp > 1:
        rows["cp"] = mesh.transpose(0, 2, 1).reshape(-1, cp)
    communicators = tuple(
        Communicator(kind, tuple(row)) for kind, table in rows.items() for row in table.tolist()
    )
    stages = mesh.reshape(pp, -1).tolist()
    pairs = [pair for two in pairwise(stages) for pair in zip(*two, strict=True)]
    if wrap and pp > 1:
        pairs += zip(stages[-1], stages[0], strict=True)
    edges = [Edge(a, b, "forward") for a, b in pairs] + [Edge(b, a, "backward") for a, b in pairs]
    return communicators, tuple(edges)
