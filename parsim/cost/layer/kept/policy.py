"""What a software stack keeps of a layer beside what backward reads, and in how many bytes."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from parsim.plan import CpCommType, PlanTable


class KeptPolicy(NamedTuple):
    """What a software stack keeps of a layer.

    Selective recomputation is of `half_products`, whose last output only `keeps_output` keeps.
    `ring_output` keeps one more output of attention with context parallelism. What modules are
    computed again are one `region`, inside which nothing is kept. `narrow_attention` keeps queries,
    keys and values as recipes that quantise attention do. `eager` are values that an operator keeps
    beside what a fused one does, for each of its own, by its kind. With `local_adapters` the first
    factor of a column-split product's adapter reads a tensor rank's own tokens alone. Context ranks
    exchange by `cp_comm_type` where their plan does not say.
    """

    half_products: bool = False
    keeps_output: bool = False
    ring_output: bool = True
    region: bool = False
    narrow_attention: bool = False
    eager: Mapping[str, float] = MappingProxyType({})
    local_adapters: bool = False
    cp_comm_type: CpCommType = CpCommType.DEFAULT


FUSED = KeptPolicy()
"""What is taken of a stack of which nothing else is known."""


def product_input_bytes(table: PlanTable) -> float:
    """Bytes of one value of a matrix product's input between forward and backward.

    Recipes that quantise say how they keep it (`Quantization.kept`); else it is an activation.
    """
    quantization = table.precision.quantization
    return float(quantization.kept if quantization else table.precision.activation)
