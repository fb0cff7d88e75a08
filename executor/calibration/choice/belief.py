"""How uncertain kernel times are before and after measuring some of them.

The errors ln(measured / modelled) of N shapes are taken as jointly normal; of shapes x and y

    cov = family^2 [same constants] + kind^2 [same kind]
          + near^2 [same kind] prod_d exp(-|x_d - y_d| / length_d) + single^2 [x is y]

with coordinates in octaves. So measuring one shape tells most of itself, something of its
neighbours, and through the constants a little of every shape of its family.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, replace

import numpy as np

from executor.calibration.cases import kinds
from parsim.arrays import Array

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
    single: float
    lengths: tuple[float, ...]

    def scaled(self, times: float) -> Prior:
        """So many times less certain."""
        family, kind, near, single = (times * sd for sd in astuple(self)[:4])
        return Prior(family=family, kind=kind, near=near, single=single, lengths=self.lengths)

    def measured(self, scatter: float, count: int) -> Prior:
        """After the constants were fitted to `count` shapes that scatter so much around them."""
        share = scatter / float(np.hypot(self.near, self.single))
        near, single = share * self.near, share * self.single
        return replace(self, family=0.0, kind=scatter / count**0.5, near=near, single=single)


# Unmeasured GEMMs 6 to 10 % median by the catalog's roofline (sd 0.15), 4 to 5 % by fitted
# constants with a spread of 6 to 8 % around them; length scales of published GEMM tables.
_PRODUCTS = Prior(family=0.0, kind=0.13, near=0.07, single=0.02, lengths=(3.0, 3.0, 3.0))
# Attention: 10 to 20 % uncalibrated, 2 to 6 % calibrated.
_ATTENTION = Prior(family=0.0, kind=0.15, near=0.05, single=0.02, lengths=(3.0, 2.0))
# Memory-bound: 10 to 20 % uncalibrated, 5 % expected; one bandwidth for all of them.
_MEMORY = Prior(family=0.12, kind=0.12, near=0.05, single=0.02, lengths=(3.0,))
# Collectives in a node: 6 to 16 % above 1 MiB, a factor of 2 below; 3 to 10 % by 4 or 5 sizes.
_MESSAGES = Prior(family=0.15, kind=0.10, near=0.25, single=0.05, lengths=(4.0,))
# Assumption: a group of twice the ranks is as far as three octaves of size.
_LINKS = replace(_MESSAGES, lengths=(4.0, 1.5))
ANY_CPU = 4.0
"""A catalog's CPU is any core of its kind: so many times less certain than a GPU, constants and
single shapes (caches) alike. With it the 80 % intervals of two recorded plan spaces hold 75 % of
their steps (reports/decisions/0008-what-calibration-measures.md)."""


def prior(kind: str, *, cpu: bool = False) -> Prior:
    """What is assumed of a kind before it is measured (sources beside the numbers)."""
    priors = {"gemm": _PRODUCTS, "memory": _MEMORY, "links": _LINKS}
    assumed = _MESSAGES if kind == kinds.SEND_RECV else priors.get(family(kind), _ATTENTION)
    return assumed.scaled(ANY_CPU) if cpu else assumed


def family(kind: str) -> str:
    """Kinds that share fitted constants."""
    if kind == "gemm" or kind.startswith("attention"):
        return kind
    return "links" if kind in kinds.LINKS else "memory"


def covariance(shapes: Sequence[Shape], priors: Mapping[str, Prior]) -> Array:
    """The matrix above, N x N, of shapes whose kinds have these priors."""
    kind_of = [kind for kind, _ in shapes]
    known = {kind: priors[kind] for kind in dict.fromkeys(kind_of)}
    matrix = np.zeros((len(shapes), len(shapes)))
    names = np.array([family(kind) for kind in kind_of])
    for kind, assumed in known.items():
        rows = np.flatnonzero(np.array(kind_of) == kind)
        at = np.log2(np.array([shapes[int(i)][1] for i in rows], dtype=np.float64))
        distance = np.abs(at[:, None, :] - at[None, :, :]) / np.array(assumed.lengths)
        alike = np.exp(-distance.sum(axis=2))
        matrix[np.ix_(rows, rows)] = assumed.kind**2 + assumed.near**2 * alike
        matrix[rows, rows] += assumed.single**2
    shared = np.array([known[kind].family for kind in kind_of])
    return np.asarray(matrix + (names[:, None] == names[None, :]) * np.outer(shared, shared))


def after(belief: Array, measured: Sequence[int], noise: float = NOISE) -> Array:
    """The covariance once several shapes are measured."""
    rows = np.asarray(measured, dtype=np.intp)
    if not rows.size:
        return belief
    inner = belief[np.ix_(rows, rows)] + noise**2 * np.eye(rows.size)
    return np.asarray(belief - belief[:, rows] @ np.linalg.solve(inner, belief[rows]))
