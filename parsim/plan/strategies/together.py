"""Strategies whose workers hold one model together in groups: by branches, or by tensors."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar

from parsim.plan.strategies.strategy import Strategy


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchParallel(Strategy):
    """So many neighbouring workers hold one model together: branches that may run at once, apart.

    `branches` are pairs of a branch's name and its device, 0 to `devices` - 1; what is not named is
    where the simulator puts it (None), or on the device of what it hangs on.
    """

    name: ClassVar[str] = "branch_parallel"
    devices: int = 2
    branches: tuple[tuple[str, int], ...] | None = None

    @property
    def sharers(self) -> int:
        """Workers that hold a model together."""
        return self.devices

    def to_json(self) -> dict[str, Any]:
        """The name with the options; branches as a mapping."""
        given = {} if self.branches is None else {"branches": dict(self.branches)}
        return {"name": self.name, "devices": self.devices, **given}

    def label(self) -> str:
        """How many devices, and how many branches are placed by hand."""
        placed = "" if self.branches is None else f" branches={len(self.branches)} placed"
        return f"{self.name} devices={self.devices}{placed}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout(Strategy):
    """A mesh of workers holds one model together, tensors split, whole or partial on each axis.

    `mesh` are names and sizes of axes, the outermost first. Either `layout` maps named dimensions
    to axes (Mesh-TensorFlow), or `signatures` say by operation what devices have of its input,
    weight and output (OneFlow's SBP, "B,S(1)"); what neither states is chosen by cost.
    """

    name: ClassVar[str] = "layout"
    mesh: tuple[tuple[str, int], ...] = (("devices", 2),)
    layout: tuple[tuple[str, str], ...] | None = None
    signatures: tuple[tuple[str, tuple[tuple[str, str], ...]], ...] | None = None

    @property
    def sharers(self) -> int:
        """Workers that hold a model together: devices of the mesh."""
        return prod(size for _, size in self.mesh)

    @property
    def names(self) -> dict[str, str] | None:
        """Axes of named dimensions, where the layout is stated so."""
        return None if self.layout is None else dict(self.layout)

    @property
    def stated(self) -> dict[str, dict[str, str]] | None:
        """Signatures by operation, where they are stated."""
        return None if self.signatures is None else {n: dict(s) for n, s in self.signatures}

    def to_json(self) -> dict[str, Any]:
        """The name with the options, as mappings."""
        given = {"layout": self.names, "signatures": self.stated}
        options = {key: value for key, value in given.items() if value is not None}
        return {"name": self.name, "mesh": dict(self.mesh), **options}

    def label(self) -> str:
        """The mesh, and how the layout is stated."""
        axes = " ".join(f"{name}={size}" for name, size in self.mesh)
        dims = "" if self.layout is None else " " + " ".join(f"{d}:{a}" for d, a in self.layout)
        stated = "" if self.signatures is None else f" signatures={len(self.signatures)} stated"
        return f"{self.name} {axes}{dims}{stated}"
