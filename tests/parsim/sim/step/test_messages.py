"""Messages between stages: beside compute they cost their sender nothing, in every schedule."""

from __future__ import annotations

from dataclasses import replace

import pytest

from parsim.cost.job import Job
from parsim.plan import Plan
from parsim.schedule import build_schedule
from parsim.sim import Prediction, simulate

SHAPE = Plan(pp=4, dp_replicate=4, num_microbatches=8)
NAMED = {
    "naive": replace(SHAPE, schedule="naive"),
    "gpipe": replace(SHAPE, schedule="gpipe"),
    "1f1b": SHAPE,
    "interleaved_1f1b": replace(SHAPE, schedule="interleaved_1f1b", v=3),
}
PLANS = NAMED | {
    f"own {name}": replace(
        plan,
        schedule="own.csv",
        actions=build_schedule(plan.schedule, pp=4, num_microbatches=8, v=plan.v).to_csv(),
    )
    for name, plan in NAMED.items()
}


def sends(prediction: Prediction) -> list[float]:
    """What each message holds up its sender."""
    assert prediction.timeline is not None
    return [span.exposed for span in prediction.timeline.spans if span.stream == "send"]


@pytest.mark.parametrize("name", PLANS)
def test_sends_beside_compute_hold_nobody_up(name: str, job: Job) -> None:
    beside, blocking = (
        simulate(job, replace(PLANS[name], overlap_p2p=on), tier="events", timeline=True)
        for on in (True, False)
    )
    assert beside.step_time < blocking.step_time or name.endswith(("naive", "gpipe"))
    # the same sums in another order
    assert beside.step_time <= blocking.step_time * (1.0 + 1e-12)
    free, waiting = sends(beside), sends(blocking)
    assert free
    assert not any(free)
    assert all(waiting)
