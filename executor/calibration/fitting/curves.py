"""The curves of a system file: what collectives of each measured group take, by size.

A curve is latency + S / bandwidth + ramp sqrt(S / 1 MiB) beyond what every call costs; what it
leaves of the measured times are the residuals.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np

from executor.calibration.cases import kinds
from executor.calibration.cases.samples import Sample, seconds_of
from executor.calibration.fitting.catalog_file import with_units
from executor.calibration.fitting.constants import system_constants
from parsim.arrays import Array
from parsim.cluster.hardware import Curve, System
from parsim.units import MIB

FEWEST = 3
"""Sizes that a curve of three figures needs."""
LEAST_SHARE = 1e-3


def curves_of(system: System, samples: Sequence[Sample], source: str) -> tuple[Curve, ...]:
    """A curve for each collective and number of ranks that was measured at enough sizes."""
    by_group: dict[tuple[str, int], list[Sample]] = {}
    for sample in samples:
        if sample.kind != kinds.SEND_RECV:
            by_group.setdefault((sample.kind, int(sample.shape["ranks"])), []).append(sample)
    curves = (_curve(system, group, timed, source) for group, timed in sorted(by_group.items()))
    return tuple(curve for curve in curves if curve is not None)


def _curve(
    system: System, group: tuple[str, int], timed: Sequence[Sample], source: str
) -> Curve | None:
    """The curve of a collective on so many ranks; None where its times give none."""
    kind, ranks = group
    sizes = np.array([sample.shape["bytes"] for sample in timed])
    call = system.call_overhead + system.call_overhead_per_rank * (ranks - 1)
    figures = fitted(sizes, seconds_of(timed), call)
    if figures is None:
        return None
    latency, slope, ramp = figures
    return Curve(
        collective=kind,
        ranks=ranks,
        nodes=1,
        latency=latency,
        bandwidth=1.0 / slope,
        ramp=ramp,
        link=system.intra.bandwidth,
        node_bandwidth=None,
        least=float(sizes.min()),
        most=float(sizes.max()),
        source=source,
    )


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
    for used in product((True, False), repeat=3):  # all ways to leave some at 0
        figures = np.zeros(3)
        figures[list(used)], *_ = np.linalg.lstsq(scaled[:, list(used)], wanted, rcond=None)
        missed = float(np.sum((scaled @ figures - wanted) ** 2))
        if (figures >= 0.0).all() and missed < least:
            best, least = figures, missed
    if best is None or best[1] * grown < LEAST_SHARE:
        return None
    return float(best[0]), float(best[1]), float(best[2])


def system_document(system: System, samples: Sequence[Sample]) -> dict[str, Any]:
    """The fitted figures of a system for the document, in the units that their names say."""
    return {
        "intra.bandwidth_bytes_per_s": system.intra.bandwidth,
        **with_units(system_constants(system)),
        "interference": system.interference,
        "interference_rate_bytes_per_s": system.interference_rate,
        "message_interference": system.message_interference,
        "rank_spread": system.rank_spread,
        "memory_contention": system.memory_contention,
        "two_way_loss": system.two_way_loss,
        "curves": [_curve_document(curve, samples) for curve in system.curves],
    }


def _curve_document(curve: Curve, samples: Sequence[Sample]) -> dict[str, Any]:
    """A curve, and of how many sizes it was drawn."""
    groups = [(sample.kind, sample.shape.get("ranks")) for sample in samples]
    return {
        "collective": curve.collective,
        "ranks": curve.ranks,
        "nodes": curve.nodes,
        "latency_s": curve.latency,
        "bandwidth_bytes_per_s": curve.bandwidth,
        "ramp_s": curve.ramp,
        "least_bytes": curve.least,
        "most_bytes": curve.most,
        "n": groups.count((curve.collective, curve.ranks)),
    }
