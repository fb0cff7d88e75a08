"""What a stack costs the hosts, and what it launches otherwise than kernel by kernel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class HostHabits:
    """Seconds of the hosts, how much they differ, and what they need not launch."""

    # Host seconds of a kernel's launch.
    launch_cost: float
    # Standard deviation of the log of what hosts take, where no run of the stack shows it.
    launch_spread: float
    # The same in mixtures of experts.
    mixture_spread: float
    # Relative standard deviation of it between ranks.
    host_spread: float
    # Host seconds of a micro-batch.
    microbatch_overhead: float
    # Bytes/s at which a host copies its devices' samples to them before a micro-batch, with nothing
    # beside (0: they are there by then; `cost/hosts.py`).
    input_copy_rate: float
    # Whether the host takes up the next micro-batch while the device still computes.
    runs_ahead: bool
    # Relative standard deviation of a step between replicas, which wait for the slowest one, by
    # what a sample is ("images", else tokens) and compute precision: "images fp16", "images",
    # "fp16", or "default".
    replica_spread: Mapping[str, float] = field(hash=False)
    # Host seconds for each rank's piece of a sharded collective, where these are tensors of their
    # own.
    piece_cost: float
    # Host seconds that each group of parameters adds to I and to W of a backward in two
    # (`cost/layer/split_calls.py`).
    split_cost: tuple[float, float]
    # Parts of layers that CUDA graphs launch, as Megatron-Core names them.
    graphs: tuple[str, ...]
    # Whether one graph launches a whole iteration.
    cuda_graphs: bool
    # Whether the host waits for each kernel (CUDA_LAUNCH_BLOCKING=1), so that its time comes on top
    # of the device's and nothing runs beside anything else.
    blocking_launches: bool

    @property
    def captured(self) -> tuple[str, ...]:
        """What CUDA graphs launch: everything, or the parts of layers in `graphs`."""
        return ("all",) if self.cuda_graphs else self.graphs

    def spread_of_replicas(self, compute: str, *, images: bool) -> float:
        """Relative standard deviation of a step between replicas.

        Args:
            compute: the precision of products.
            images: whether samples are images, which a stack may spread otherwise than sentences.
        """
        keys = (*((f"images {compute}", "images") if images else ()), compute)
        known = (self.replica_spread[key] for key in keys if key in self.replica_spread)
        return float(next(known, self.replica_spread["default"]))

    def launch_doubt(self, *, mixture: bool) -> float:
        """How much hosts of other machines differ, ln, in a mixture of experts or another model."""
        return self.mixture_spread if mixture else self.launch_spread

    @property
    def between_microbatches(self) -> float:
        """Host seconds of a micro-batch; a graph of the whole iteration leaves none."""
        return 0.0 if self.cuda_graphs else self.microbatch_overhead
