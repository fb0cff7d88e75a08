"""One measured time, and what the simulator gives the same kernel, collective or message."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from executor.calibration.cases import kinds
from executor.calibration.cases.networks import DIRECTIONS, convolution_of
from parsim.arrays import Array, Index
from parsim.cluster.hardware import Device, System
from parsim.cost.collective.collectives import collective_time, p2p_time
from parsim.cost.collective.group_bandwidth import Groups, groups
from parsim.cost.kernel.convolutions import convolution_time
from parsim.cost.kernel.flash import flash_attention_time
from parsim.cost.kernel.kernels import gemm_time, memory_time
from parsim.cost.software import Software


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

        Shapes: a GEMM's m, n, k; a convolution's sides and sizes; attention's executed `flops` and
        `seq_len`; a memory-bound kernel's `bytes` and `launches`.
        """
        return float(self.times(device, [Sample(kind=kind, shape=shape, seconds=0.0)])[0])

    def times(self, device: Device, samples: Sequence[Sample]) -> Array:
        """Seconds of many kernels, all of a kind at once: a fit asks thousands of times."""
        seconds = np.empty(len(samples))
        for kind in dict.fromkeys(sample.kind for sample in samples):
            rows = [i for i, sample in enumerate(samples) if sample.kind == kind]
            names = samples[rows[0]].shape
            table = {n: np.array([float(samples[i].shape[n]) for i in rows]) for n in names}
            seconds[rows] = self._times(device, kind, table)
        return seconds

    def _times(self, device: Device, kind: str, shape: Mapping[str, Array]) -> Array:
        if kind in kinds.CONVOLUTIONS and kinds.CONVOLUTION_SIZES[0] in shape:
            rows = [dict(zip(shape, row, strict=True)) for row in zip(*shape.values(), strict=True)]
            return np.array([self._convolution(device, kind, row) for row in rows])
        if kind == kinds.GEMM or kind in kinds.CONVOLUTIONS:  # of a file, which has the sides alone
            m, n, k = (shape[name] for name in "mnk")
            return np.asarray(gemm_time(device, self.precision, m=m, n=n, k=k, value=self.value))
        if kind in (kinds.FORWARD, kinds.BACKWARD):
            flops, length, back = shape["flops"], shape["seq_len"], kind == kinds.BACKWARD
            seconds = flash_attention_time(
                device, self.precision, flops=flops, seq_len=length, backward=back
            )
            return np.asarray(seconds)
        return np.asarray(memory_time(device, shape["bytes"], shape["launches"], kind))

    def _convolution(self, device: Device, kind: str, shape: Mapping[str, float]) -> float:
        op, images = convolution_of(shape)
        way, value = DIRECTIONS[kind], float(self.value)
        return float(convolution_time(device, self.precision, op, way, images, value))


def link_times(system: System, samples: Sequence[Sample]) -> Array:
    """Seconds that the simulator gives collectives of neighbouring ranks, and messages.

    A collective's shape is its `bytes` and the `ranks` of its group, a message's its `bytes`.
    """
    seconds = np.empty(len(samples))
    for kind in dict.fromkeys(sample.kind for sample in samples):
        rows = [i for i, sample in enumerate(samples) if sample.kind == kind]
        size = np.array([float(samples[i].shape["bytes"]) for i in rows])
        if kind == kinds.SEND_RECV:
            seconds[rows] = p2p_time(system, size, crosses=False, sharing=1.0)
        else:
            ranks = np.array([int(samples[i].shape["ranks"]) for i in rows])
            where = neighbours(system, ranks)
            seconds[rows] = collective_time(system, kind, size, where)  # type: ignore[arg-type]
    return seconds


def link_time(system: System, kind: str, shape: Mapping[str, float]) -> float:
    """Seconds that the simulator gives one collective or message."""
    return float(link_times(system, [Sample(kind=kind, shape=shape, seconds=0.0)])[0])


def neighbours(system: System, ranks: Index) -> Groups:
    """Groups of so many neighbouring ranks, one for each."""
    return groups(system, size=ranks, stride=np.ones_like(ranks), world=ranks)


def seconds_of(samples: Sequence[Sample]) -> Array:
    """The measured times."""
    return np.array([sample.seconds for sample in samples])
