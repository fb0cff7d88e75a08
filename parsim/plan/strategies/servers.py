"""Strategies with parameter servers: gradients go there, and weights come back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from parsim.plan.strategies.strategy import Strategy

Where = Literal["hosts", "devices"]
Compressing = Literal["top_k", "half"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Servers(Strategy):
    """Where weights are served, and how gradients go there.

    `servers` share out the parameters (None: one on each host, or each device). `compression` is
    the share of a gradient's bytes that is sent: the largest values with their indices ("top_k",
    what None means; what is not sent is added to the next gradient), or all in 16 bit ("half").
    """

    servers: int | None = None
    on: Where = "hosts"
    compression: float = 1.0
    compressor: Compressing | None = None

    @property
    def feeds_back(self) -> bool:
        """Whether workers keep what they did not send."""
        return self.compression < 1.0 and self.compressor != "half"


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterServer(Servers):
    """Servers sum all gradients of a step; those of the last `backup_workers` are dropped.

    With `node_sums` the workers of a node sum their gradients first, each a part of them, and send
    the sum, and each fetches a part of the weights for the others (MXNet's `dist_device_sync`,
    TensorFlow's `distributed_replicated`, BytePS). With `overlap` a worker pushes each part of its
    gradient as soon as the last backward has made it.
    """

    name: ClassVar[str] = "parameter_server"
    weighs_batches: ClassVar[bool] = True
    backup_workers: int = 0
    node_sums: bool = False
    overlap: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AsynchronousServer(Servers):
    """Servers apply each gradient as it comes.

    No worker is more than `staleness` + 1 rounds ahead of the slowest (None: as far as it gets).
    `updates` of each worker are simulated.
    """

    name: ClassVar[str] = "asynchronous_server"
    staleness: int | None = None
    updates: int = 200
