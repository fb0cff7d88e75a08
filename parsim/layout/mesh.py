"""A mesh of devices with named axes, and what a device of an axis has of a tensor.

    rows: 2, cols: 3     ranks   0 1 2     along cols: 0 1 2 and 3 4 5
                                 3 4 5     along rows: 0 3, 1 4 and 2 5

Source: Mesh-TensorFlow (Shazeer et al. 2018, arXiv:1811.02084), section 3.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

from parsim.errors import PlanError, shown

REPLICAS = "replicas"
"""The axis of copies of a mesh that hold the model again: they share out the samples alone."""


@dataclass(frozen=True, slots=True)
class Mesh:
    """Names and sizes of axes, the outermost first; ranks count along the last one fastest."""

    axes: tuple[tuple[str, int], ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the axes."""
        return tuple(name for name, _ in self.axes)

    @property
    def sizes(self) -> tuple[int, ...]:
        """How many devices each has."""
        return tuple(size for _, size in self.axes)

    @property
    def ranks(self) -> int:
        """Devices of the mesh."""
        return prod(self.sizes)

    def repeated(self, replicas: int) -> Mesh:
        """So many of this mesh, as one with an outermost axis more."""
        return self if replicas == 1 else Mesh(((REPLICAS, replicas), *self.axes))

    def stride(self, axis: int) -> int:
        """Distance in ranks between neighbours along an axis."""
        return prod(self.sizes[axis + 1 :])

    def coordinates(self, rank: int) -> tuple[int, ...]:
        """Where a rank is on each axis."""
        return tuple(rank // self.stride(axis) % size for axis, size in enumerate(self.sizes))

    def groups(self, axes: Sequence[int]) -> tuple[tuple[int, ...], ...]:
        """The ranks that differ on these axes alone, group by group."""
        others = [axis for axis in range(len(self.axes)) if axis not in axes]
        return tuple(
            tuple(
                sum(base) + sum(steps)
                for steps in product(*(self._steps(axis) for axis in sorted(axes)))
            )
            for base in product(*(self._steps(axis) for axis in others))
        )

    def _steps(self, axis: int) -> range:
        stride = self.stride(axis)
        return range(0, self.sizes[axis] * stride, stride)


@dataclass(frozen=True, slots=True, order=True)
class Sbp:
    """One of S(dim), B, P; `dim` is that of a split.

        S(d)    split     the tensor is cut along dimension d, a part a device, in order
        B       broadcast every device has all of it
        P       partial   every device has a tensor of the full shape, and their sum is the tensor

    Dimension 0 of an activation is its batch, those of a sample follow. A mesh of several axes has
    one of the three for each: "S(0),B" is split by batch over the first axis and whole on the
    second.

    The gradient of a tensor has the dual: every copy of a B tensor gets a summand of its gradient,
    and every summand of a P tensor the whole gradient.

    Source: OneFlow (Yuan et al. 2021, arXiv:2110.15032), section 3.1.
    """

    kind: str
    dim: int = 0

    def __str__(self) -> str:
        return f"S({self.dim})" if self.kind == "S" else self.kind

    @property
    def dual(self) -> Sbp:
        """What the gradient of such a tensor is: B and P change places."""
        return {"B": P, "P": B}.get(self.kind, self)

    @property
    def splits(self) -> bool:
        """Whether it cuts a dimension."""
        return self.kind == "S"


B, P = Sbp("B"), Sbp("P")
NdSbp = tuple[Sbp, ...]
"""One for each axis of a mesh, the outermost first."""


def S(dim: int) -> Sbp:  # the letter of the paper
    """Split along a dimension."""
    return Sbp("S", dim)


def dual(signature: NdSbp) -> NdSbp:
    """What the gradient of a tensor of a mesh is."""
    return tuple(part.dual for part in signature)


def words(signature: Iterable[Sbp]) -> str:
    """A layout as users write it: "B,S(1)"."""
    return ",".join(map(str, signature))


def read_sbp(text: str, axes: int) -> NdSbp:
    """Read what a user wrote for all axes of a mesh.

    Raises:
        PlanError: a part is none of the three, or there are not as many as axes.
    """
    parts = [part.strip() for part in text.split(",")]
    if len(parts) != axes:
        raise PlanError(
            f"'{shown(text)}' has {len(parts)} parts, but the mesh has {axes} axes; give one of "
            f"S(dim), B, P for each, joined by commas"
        )
    return tuple(_read(part) for part in parts)


def _read(part: str) -> Sbp:
    if part.upper() in ("B", "P"):
        return Sbp(part.upper())
    match = re.fullmatch(r"[sS]\((\d{1,2})\)", part)
    if match is None:
        raise PlanError(f"'{shown(part)}' is none of S(dim), B, P, such as S(0)")
    return S(int(match[1]))


def parts_of(signature: NdSbp, dim: int, sizes: tuple[int, ...]) -> int:
    """Into how many parts a dimension is cut by all axes of these sizes together."""
    return prod(n for part, n in zip(signature, sizes, strict=True) if part == S(dim))


def local_shape(
    shape: tuple[int, ...], signature: NdSbp, sizes: tuple[int, ...]
) -> tuple[int, ...]:
    """The shape of a sample's tensor on one device; dimension 1 of the tensor is its first.

    Raises:
        ValueError: a dimension that there is not, or that is not divided.
    """
    local = list(shape)
    for part, n in zip(signature, sizes, strict=True):
        if part.splits and part.dim:
            local[part.dim - 1], rest = divmod(local[part.dim - 1], n)
            if rest:
                raise ValueError(f"{n} does not divide dimension {part.dim} of {shape}")
    return tuple(local)
