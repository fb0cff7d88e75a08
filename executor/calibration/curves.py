"""The curves of a system file: what collectives of each measured group take, by size.

A curve is latency + S / bandwidth + ramp sqrt(S / 1 MiB) beyond what every call costs; what it
leaves of the measured times are the residuals.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

import numpy as np
from numpy.typing import NDArray

from executor.calibration.sample import SEND_RECV, Sample, seconds_of
from parsim.cluster.hardware import Curve, System
from parsim.cost.shape import MIB

Array = NDArray[np.float64]

FEWEST = 3
"""Sizes that a curve of three figures needs."""
LEAST_SHARE = 1e-3


def curves_of(system: System, samples: Sequence[Sample], source: str) -> tuple[Curve, ...]:
    """A curve for each collective and number of ranks that was measured at enough sizes."""
    return tuple(_curves(system, samples, source))


def _curves(system: System, samples: Sequence[Sample], source: str) -> Iterator[Curve]:
    by_group: dict[tuple[str, int], list[Sample]] = {}
    for one in samples:
        if one.kind != SEND_RECV:
            by_group.setdefault((one.kind, int(one.shape["ranks"])), []).append(one)
    for (kind, ranks), own in sorted(by_group.items()):
        sizes = np.array([one.shape["bytes"] for one in own])
        call = system.call_overhead + system.call_overhead_per_rank * (ranks - 1)
        figures = fitted(sizes, seconds_of(own), call)
        if figures is not None:
            latency, slope, ramp = figures
            yield Curve(
                collective=kind, ranks=ranks, nodes=1, latency=latency, bandwidth=1.0 / slope,
                ramp=ramp, link=system.intra.bandwidth, node_bandwidth=None,
                least=float(sizes.min()), most=float(sizes.max()), source=source,
            )  # fmt: skip


def fitted(sizes: Array, seconds: Array, call: float) -> tuple[float, float, float] | None:
    """Latency, seconds a byte and ramp, none below 0, whose times miss the measured ones least.

    Relative errors count. None where too few sizes were measured, or time does not grow with size:
    bytes must be LEAST_SHARE of the largest one's time.
    """
    if len(np.unique(sizes)) < FEWEST:
        return None
    columns = np.stack([np.ones_like(sizes), sizes, np.sqrt(sizes / MIB)], axis=1)
    scaled, wanted = columns / seconds[:, None], (seconds - call) / seconds
    best, least = None, np.inf
    grown = float(sizes.max() / seconds[sizes.argmax()])
    for latency, ramp in product((True, False), repeat=2):  # all ways to leave one at 0
        used = [latency, True, ramp]
        found = np.zeros(3)
        found[used], *_ = np.linalg.lstsq(scaled[:, used], wanted, rcond=None)
        missed = float(np.sum((scaled @ found - wanted) ** 2))
        if (found >= 0.0).all() and missed < least:
            best, least = found, missed
    if best is None or best[1] * grown < LEAST_SHARE:
        return None
    return float(best[0]), float(best[1]), float(best[2])
