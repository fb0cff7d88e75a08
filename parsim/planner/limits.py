"""What a space of plans allows of one whose memory and bubble are known."""

from __future__ import annotations

from dataclasses import replace

from parsim.cost.job import Job
from parsim.plan import Plan, PlanSpace
from parsim.sim.confidence.memory_fit import Fit
from parsim.sim.orders.auto import ordered
from parsim.sim.prediction import Prediction


def allowed(prediction: Prediction, space: PlanSpace) -> bool:
    """Whether a plan fits the devices and the space's own limits."""
    peak = max(prediction.peak_allocated)
    capped = space.memory_cap is None or peak <= space.memory_cap
    return prediction.fit == Fit.FITS and capped and keeps_busy(prediction.bubble_fraction, space)


def in_order(job: Job, space: PlanSpace, plan: Plan) -> Plan:
    """The plan with the order that its `schedule: auto` stands for in a space; others as they are.

    What fits, and what is tight, is what the space says: its margin, and its memory cap.
    """
    return ordered(capped(job, space), plan, space.memory_margin)


def capped(job: Job, space: PlanSpace) -> Job:
    """The job on devices that have no more memory than a space's cap, and their context."""
    if space.memory_cap is None:
        return job
    least = min(job.device.memory, space.memory_cap + job.context_memory)
    system = replace(job.system, device=replace(job.device, memory=least))
    return replace(job, cluster=replace(job.cluster, system=system))


def keeps_busy(bubble: float, space: PlanSpace) -> bool:
    """Whether a plan's bubble, a share of its pipeline phase, is at most the space's largest."""
    return space.max_bubble is None or bubble <= space.max_bubble
