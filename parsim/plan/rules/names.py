"""Rules of names: schedules, precisions and modules that are known, and a device that has them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from parsim.cluster.hardware import Cluster
from parsim.errors import alternatives, shown
from parsim.model.model import Model
from parsim.plan.fields import AXES
from parsim.plan.names import (
    AUTO,
    OFFLOAD_MODULES,
    RECOMPUTE_MODULES,
    SCHEDULE_NAMES,
    WITHOUT_FLUSH,
)
from parsim.plan.precision import PRECISIONS, SUMS
from parsim.plan.record import Plan

_EVERY_SCHEDULE = (*SCHEDULE_NAMES, AUTO, *WITHOUT_FLUSH)
"""Schedules that a plan may name, looked at by searches or not."""


def schedule_name_rules(plan: Plan, model: Model, cluster: Cluster) -> str | None:
    """The schedule is one that parsim knows, unless it is the user's own."""
    if plan.actions is not None:
        return None
    return _unknown("schedule", plan.schedule, _EVERY_SCHEDULE)


def _unknown(field: str, value: str, allowed: Sequence[str]) -> str | None:
    if value in allowed:
        return None
    known = alternatives(value, allowed, listing=f"parsim catalog {field}s")
    return f"{field}={shown(repr(value))} is unknown{known}"


def name_rules(plan: Plan, model: Model, cluster: Cluster) -> str | None:
    """Every other name is known, and every device has a peak for the precision."""
    unknown = (_unknown(*choice) for choice in _named(plan))
    if message := next(filter(None, unknown), None):
        return message
    if sorted(plan.rank_order) != sorted(AXES):
        return (
            f"rank_order={'-'.join(plan.rank_order)} must name each of {', '.join(AXES)} once, "
            f"outermost first"
        )
    if not _has_peaks(plan.precision, cluster):
        used = _peaks_of(plan.precision)
        without = next(device for device in cluster.devices if not used <= device.peak_flops.keys())
        return (
            f"precision={plan.precision!r} has no peak on device {without.id}; "
            f"allowed: {', '.join(name for name in PRECISIONS if _has_peaks(name, cluster))}"
        )
    return None


def _named(plan: Plan) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Fields that name something, what they name, and the names that there are."""
    yield "precision", plan.precision, tuple(PRECISIONS)
    yield "gradient_precision", plan.gradient_precision, SUMS
    yield "reduce_precision", plan.reduce_precision, SUMS
    yield from (("recompute_modules", name, RECOMPUTE_MODULES) for name in plan.recompute_modules)
    yield from (("offload_modules", name, OFFLOAD_MODULES) for name in plan.offload_modules)


def _has_peaks(name: str, cluster: Cluster) -> bool:
    used = _peaks_of(name)
    return all(used <= device.peak_flops.keys() for device in cluster.devices)


def _peaks_of(name: str) -> set[str]:
    return {PRECISIONS[name].compute, PRECISIONS[name].products}
