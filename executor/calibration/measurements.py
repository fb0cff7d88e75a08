"""All that a calibration has timed on a machine, before anything is fitted to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from executor.calibration.cases.samples import Sample
from executor.calibration.gaps import Gap
from executor.calibration.timing.layers import LayerSample
from executor.calibration.timing.losses import Losses


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurements:
    """Everything timed on one machine, and the `gaps` that were not.

    `reference` is the same product at three moments; `repeated` layers were timed twice,
    and for the share `queued` of a layer's time at most there was no core for it. `rank_spread` is
    the standard deviation, as a share, between ranks that did the same at the same time, `losses`
    what they lose to one another, the mean of several moments; None: nobody shares anything.
    `core_product` are the seconds of a small product on one core at its quickest, None on a GPU.
    """

    kernels: Sequence[Sample]
    links: Sequence[Sample]
    reference: tuple[float, ...]
    notes: tuple[str, ...]
    layers: Sequence[LayerSample] = ()
    gaps: Sequence[Gap] = ()
    repeated: int = 0
    queued: float = 0.0
    rank_spread: float = 0.0
    losses: Losses | None = None
    core_product: float | None = None

    @property
    def drift(self) -> float:
        """How much longer the slowest reference product took than the fastest."""
        return max(self.reference) / min(self.reference) - 1.0

    @property
    def clock(self) -> float:
        """Standard deviation of the reference product's logarithm: what all times share."""
        return float(np.std(np.log(self.reference)))
