"""What a space of plans allows of one whose memory and bubble are known."""

from __future__ import annotations

from parsim.plan import PlanSpace
from parsim.sim.confidence.memory_fit import Fit
from parsim.sim.prediction import Prediction


def allowed(prediction: Prediction, space: PlanSpace) -> bool:
    """Whether a plan fits the devices and the space's own limits."""
    peak = max(prediction.peak_allocated)
    capped = space.memory_cap is None or peak <= space.memory_cap
    return prediction.fit == Fit.FITS and capped and keeps_busy(prediction.bubble_fraction, space)


def keeps_busy(bubble: float, space: PlanSpace) -> bool:
    """Whether a plan's bubble, a share of its pipeline phase, is at most the space's largest."""
    return space.max_bubble is None or bubble <= space.max_bubble
