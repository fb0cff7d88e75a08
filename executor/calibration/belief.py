"""How uncertain kernel times are before and after measuring some of them.

The errors ln(measured / modelled) of N shapes are taken as jointly normal; of shapes x and y

    cov = family^2 [same constants] + kind^2 [same kind]
          + near^2 [same kind] prod_d exp(-|x_d - y_d| / length_d) + own^2 [x is y]    x in octaves

so measuring one shape tells most of itself, something of its neighbours, and through the constants
a little of every shape of its family.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Shape = tuple[str, tuple[float, ...]]
"""A kind and its coordinates."""

NOISE = 0.02
"""Standard deviation of a measured time between two runs of one shape: 1 to 3 % (published GEMM
tables, kernel medians of two runs)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prior:
    """Standard deviations of the log error, and how far a shape's own error reaches (octaves)."""

    family: float
    kind: float
    near: float
    own: float
    lengths: tuple[float, ...]

    def scaled(self, times: float) -> Prior:
        """So many times less certain."""
        return Prior(family=times * self.family, kind=times * self.kind, near=times * self.near,
                     own=times * self.own, lengths=self.lengths)  # fmt: skip

    def measured(self, scatter: float, count: int) -> Prior:
        """After the constants were fitted to `count` shapes that scatter so much around them."""
        share = scatter / float(np.hypot(self.near, self.own))
        return Prior(family=0.0, kind=scatter / count**0.5, near=share * self.near,
                     own=share * self.own, lengths=self.lengths)  # fmt: skip


# Unmeasured GEMMs 6 to 10 % median by the catalog's roofline (sd 0.15), 4 to 5 % by fitted
# constants with a spread of 6 to 8 % around them; length scales of published GEMM tables.
_PRODUCTS = Prior(family=0.0, kind=0.13, near=0.07, own=0.02, lengths=(3.0, 3.0, 3.0))
# Attention: 10 to 20 % uncalibrated, 2 to 6 % calibrated.
_ATTENTION = Prior(family=0.0, kind=0.15, near=0.05, own=0.02, lengths=(3.0, 2.0))
# Memory-bound: 10 to 20 % uncalibrated, 5 % expected; one bandwidth for all of them.
_MEMORY = Prior(family=0.12, kind=0.12, near=0.05, own=0.02, lengths=(3.0,))
# Collectives in a node: 6 to 16 % above 1 MiB, a factor of 2 below; 3 to 10 % by 4 or 5 sizes.
_MESSAGES = Prior(family=0.15, kind=0.10, near=0.25, own=0.05, lengths=(4.0,))
# Assumption: a group of twice the ranks is as far as three octaves of size.
_LINKS = replace(_MESSAGES, lengths=(4.0, 1.5))
ANY_CPU = 4.0
"""A catalog's CPU is any core of its kind: so many times less certain than a GPU, constants and
single shapes (caches) alike. With it the 80 % intervals of two recorded plan spaces hold 75 % of
their steps (reports/decisions/0008-what-calibration-measures.md)."""
MESSAGE = "send_recv"
LINK_KINDS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", MESSAGE)
"""Collectives have bytes and ranks, messages bytes."""


def prior(kind: str, *, cpu: bool = False) -> Prior:
    """What is assumed of a kind before it is measured (sources beside the numbers)."""
    found = _LINKS if kind in LINK_KINDS else _MEMORY
    if kind == MESSAGE:
        found = _MESSAGES
    if kind == "gemm":
        found = _PRODUCTS
    elif kind.startswith("attention"):
        found = _ATTENTION
    return found.scaled(ANY_CPU) if cpu else found


def family(kind: str) -> str:
    """Kinds that share fitted constants."""
    if kind == "gemm" or kind.startswith("attention"):
        return kind
    return "links" if kind in LINK_KINDS else "memory"


def covariance(shapes: Sequence[Shape], priors: Mapping[str, Prior]) -> Array:
    """The matrix above, N x N, of shapes whose kinds have these priors."""
    kinds = [kind for kind, _ in shapes]
    known = {kind: priors[kind] for kind in dict.fromkeys(kinds)}
    found = np.zeros((len(shapes), len(shapes)))
    names = np.array([family(kind) for kind in kinds])
    for kind, one in known.items():
        rows = np.flatnonzero(np.array(kinds) == kind)
        at = np.log2(np.array([shapes[int(i)][1] for i in rows], dtype=np.float64))
        found[np.ix_(rows, rows)] = one.kind**2 + one.near**2 * _alike(at, at, one.lengths)
        found[rows, rows] += one.own**2
    shared = np.array([known[kind].family for kind in kinds])
    return np.asarray(found + (names[:, None] == names[None, :]) * np.outer(shared, shared))


def _alike(x: Array, y: Array, lengths: tuple[float, ...]) -> Array:
    distance = np.abs(x[:, None, :] - y[None, :, :]) / np.array(lengths)
    return np.asarray(np.exp(-distance.sum(axis=2)))


def after(belief: Array, measured: Sequence[int], noise: float = NOISE) -> Array:
    """The covariance once several shapes are measured."""
    rows = np.asarray(measured, dtype=np.intp)
    if not rows.size:
        return belief
    inner = belief[np.ix_(rows, rows)] + noise**2 * np.eye(rows.size)
    return np.asarray(belief - belief[:, rows] @ np.linalg.solve(inner, belief[rows]))
