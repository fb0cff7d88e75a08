"""What a space of plans allows of one whose memory and bubble are known."""

from __future__ import annotations

from parsim.plan import PlanSpace
from parsim.sim.confidence.memory_fit import Fit
from parsim.sim.prediction import Prediction


def allowed(prediction: Prediction, space: PlanSpace) -> bool:
    """Whether a plan fits the devices and the space's own limits."""
    busy = space.max_bubble is None or prediction.bubble_fraction <= space.max_bubble
    peak = max(prediction.peak_allocated)
    capped = space.memory_cap is None or peak <= space.memory_cap
    return prediction.fit == Fit.FITS and capped and busy
