"""A mesh of devices with named axes, and the groups of ranks along them.

    rows: 2, cols: 3     ranks   0 1 2     along cols: 0 1 2 and 3 4 5
                                 3 4 5     along rows: 0 3, 1 4 and 2 5

Source: Mesh-TensorFlow (Shazeer et al. 2018, arXiv:1811.02084), section 3.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

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
