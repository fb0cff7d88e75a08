"""Gradients summed among all replicas in every step: what a plan does that names no strategy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from parsim.plan.strategies.strategy import Strategy

Algorithm = Literal["ring", "tree", "hierarchical"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AllReduce(Strategy):
    """Gradients are all-reduced in buckets; `algorithm` None is what the library chooses."""

    name: ClassVar[str] = "ddp"
    own_program: ClassVar[bool] = False
    weighs_batches: ClassVar[bool] = True
    algorithm: Algorithm | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SingleProcess(Strategy):
    """One process drives all devices of a node (nn.DataParallel)."""

    name: ClassVar[str] = "data_parallel"
    one_process: ClassVar[bool] = True


DDP = AllReduce()
"""What a plan has that names no strategy."""
