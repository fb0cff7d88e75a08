"""One measured time, and what the simulator gives the same kernel, collective or message."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from executor.calibration.workloads import BACKWARD, FORWARD, GEMM
from parsim.cluster.hardware import Device, System
from parsim.cost.collectives import Groups, collective_time, groups, p2p_time
from parsim.cost.kernels import flash_attention_time, gemm_time, memory_time
from parsim.cost.software import Software

ALL_REDUCE, SEND_RECV = "all_reduce", "send_recv"
ALL_GATHER, REDUCE_SCATTER = "all_gather", "reduce_scatter"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One measured time, seconds: a kind and the numbers that its cost function asks for."""

    kind: str
    shape: Mapping[str, float]
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernels:
    """What kernel times depend on beside the device: precision, bytes of a value, software."""

    precision: str
    value: int
    software: Software

    def time(self, device: Device, kind: str, shape: Mapping[str, float]) -> float:
        """Seconds that the simulator gives one kernel.

        Shapes: a GEMM's m, n, k; attention's executed `flops` and `seq_len`; a memory-bound
        kernel's `bytes` and `launches`.
        """
        if kind == GEMM:
            m, n, k = (shape[name] for name in "mnk")
            return float(gemm_time(device, self.precision, m=m, n=n, k=k, value=self.value))
        if kind in (FORWARD, BACKWARD):
            behind = kind == BACKWARD
            flops, seq_len = shape["flops"], shape["seq_len"]
            return float(
                flash_attention_time(
                    device, self.precision, flops=flops, seq_len=seq_len, backward=behind
                )
            )
        return float(memory_time(device, shape["bytes"], shape["launches"], kind))


def link_time(system: System, where: Groups, kind: str, shape: Mapping[str, float]) -> float:
    """Seconds that the simulator gives a collective of, or a message between, two ranks."""
    if kind != SEND_RECV:
        return float(collective_time(system, kind, shape["bytes"], where)[0])  # type: ignore[arg-type]
    return float(p2p_time(system, shape["bytes"], crosses=False, sharing=1.0))


def pair(system: System) -> Groups:
    """Two neighbouring ranks of one node."""
    size, stride = np.array([2], dtype=np.int64), np.array([1], dtype=np.int64)
    return groups(system, size=size, stride=stride, world=size)


def seconds_of(samples: Sequence[Sample]) -> NDArray[np.float64]:
    """The measured times."""
    return np.array([sample.seconds for sample in samples])
