"""Which family to take, and why: does the model fit one device, does the network hold it back?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from parsim.cost.job import Job
from parsim.guide.record import FamilyRow

CLOSE = 0.03
"""A simpler family that is at most so much slower is taken: predictions are not surer than that."""
NEAR_LINEAR = 0.9
"""An efficiency that is called near-linear."""
WORTH_MENTIONING = 1.1
"""By how much another training must be faster to be mentioned."""
SIMPLEST = (
    *("one device", "DDP", "ZeRO / FSDP", "parameter server", "DataParallel"),
    *("tensor", "pipeline", "branches", "layout", "hybrid"),
)
"""Families that train as one device does, the simplest to run first."""


def choose(rows: Sequence[FamilyRow]) -> FamilyRow | None:
    """The fastest family of the same training that fits, or a simpler one that is as good as it."""
    able = [row for row in rows if row.same_training and row.fits]
    if not able:
        return None
    fastest = max(row.samples_per_second for row in able)
    close = [row for row in able if row.samples_per_second >= (1.0 - CLOSE) * fastest]
    return min(close, key=lambda row: SIMPLEST.index(row.name))


def reasons_for(job: Job, rows: Sequence[FamilyRow], chosen: FamilyRow | None) -> Iterator[str]:
    """The reasons in words, the most important first."""
    by_name = {row.name: row for row in rows}
    yield _one_device(by_name["one device"])
    if chosen is None:
        yield "no family fits: use more devices or a smaller model; parsim search has more plans"
        return
    yield from _network(by_name, chosen)
    yield from _against(by_name, chosen)
    faster = max(
        (row for row in rows if not row.same_training and row.fits),
        key=lambda row: row.samples_per_second,
        default=None,
    )
    if faster and faster.samples_per_second > WORTH_MENTIONING * chosen.samples_per_second:
        more = faster.samples_per_second / chosen.samples_per_second
        yield (
            f"{faster.name} would take {more:.2f} times as many samples a second, but trains "
            f"otherwise: what its samples are worth is not predicted"
        )
    if len({system.device.id for system in job.cluster.systems}) > 1:
        yield "devices differ: without a barrier (asynchronous server) nobody waits for the slow"


def _one_device(alone: FamilyRow) -> str:
    if alone.prediction is None:
        return f"one device: {alone.reason}"
    if alone.fits:
        full = alone.prediction.plan.recompute.name == "FULL"
        how = " with full recomputation" if full else ""
        return f"the model fits one device{how}, so every device can hold all of it"
    return (
        "the model does not fit one device: its states or its layers must be shared out (speed-ups "
        "are over one device as if it did)"
    )


def _network(by_name: dict[str, FamilyRow], chosen: FamilyRow) -> Iterator[str]:
    """Whether all-reduce of gradients scales on this network."""
    ddp = by_name["DDP"]
    if ddp.prediction is None or not ddp.fits:
        return
    efficiency = ddp.efficiency
    if efficiency is None:
        return
    percent = f"{100 * efficiency:.0f} % of linear"
    if efficiency >= NEAR_LINEAR:
        yield f"DDP is near-linear here ({percent}): the network keeps up with the gradients"
    else:
        yield f"DDP reaches {percent}; limited by {ddp.limits}"


def _against(by_name: dict[str, FamilyRow], chosen: FamilyRow) -> Iterator[str]:
    """What the recommended family has over those that one would think of first."""
    for name in ("DDP", "parameter server", "tensor", "pipeline"):
        row = by_name[name]
        if row is chosen:
            continue
        if row.prediction is None:
            yield f"{name}: {row.reason}"
        elif not row.fits:
            yield f"{name} does not fit"
        elif row.samples_per_second < chosen.samples_per_second:
            share = row.samples_per_second / chosen.samples_per_second
            yield f"{name} takes {100 * share:.0f} % of its samples a second; {row.limits}"
