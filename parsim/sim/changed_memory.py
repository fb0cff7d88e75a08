"""The memory of a plan that is predicted from another: a strategy, or a pipeline run as tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from parsim.cost.software import Software
from parsim.sim.confidence.memory_fit import fit_of, worst
from parsim.sim.memory.reserved import reserved_bytes
from parsim.sim.prediction import Prediction


@dataclass(frozen=True, slots=True, kw_only=True)
class PeakBytes:
    """Bytes at the peak of each rank, or of a device of each role, and their categories."""

    peaks: tuple[float, ...]
    categories: Sequence[Mapping[str, float]]


def with_memory(
    prediction: Prediction, software: Software, ranks: PeakBytes, *, activations: float
) -> Prediction:
    """The prediction with other bytes on its ranks.

    The interval of the peak, and the parts of the activations, are scaled with what they are of.

    Args:
        prediction: of the plan whose evidence, margin and devices the new one has.
        software: whose allocator reserves the memory.
        ranks: the new bytes.
        activations: bytes that its parts of activations stand for.
    """
    before, rank = prediction.fullest, int(np.argmax(ranks.peaks))
    memory, margin = ranks.categories[rank], prediction.margin.share
    reserved = reserved_bytes(software, np.array(ranks.peaks))
    fullest = replace(
        before, rank=rank, peak_allocated=ranks.peaks[rank], peak_reserved=float(reserved[rank])
    )
    grown = fullest.peak_allocated / before.peak_allocated
    kept = memory["activations"] / activations
    low, high = prediction.peak_interval
    return replace(
        prediction,
        peak_allocated=ranks.peaks,
        peak_reserved=tuple(float(size) for size in reserved),
        memory=memory,
        memory_by_rank=tuple(ranks.categories),
        activations={name: size * kept for name, size in prediction.activations.items()},
        peak_interval=(low * grown, high * grown),
        fullest=fullest,
        fit=worst(fit_of(software, size, fullest.usable, margin) for size in ranks.peaks),
    )
