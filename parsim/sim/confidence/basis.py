"""Says in words what an interval rests on, and by how much the unmeasured widens it."""

from __future__ import annotations

from collections.abc import Iterator
from math import exp

from parsim.cost.software import GENERIC
from parsim.sim.confidence.known_errors import (
    ANY,
    CALIBRATED,
    Errors,
    Group,
    NearestGroup,
    Standing,
    any_software,
    told_outside,
)
from parsim.units import counted, percent

Z80 = 1.2816
"""Half of an 80 % interval in standard deviations."""
FACTOR = 0.4
"""From this half width (ln) on it is told as a factor: 40 % below is not 40 % above."""
NAMED = 3
"""Parts that were not timed are named, the most important ones."""
WORTH = 0.05
"""Distances and half widths (ln) below this are not worth a word."""
_ADDED_WORDS = {
    "libraries": "libraries of kernels that no run has add",
    "launches": "a host that paces it adds",
    "kernels": "kernels away from the calibrated ones add",
    "clock": "the machine's own drift while calibrating adds",
    "layers": "scatter of the timed layers adds",
    "uneven": "an even load of experts is assumed: above it adds",
}
"""What adds to an interval, in the order in which it is told."""


def added_halves(
    standing: Standing, nearest: NearestGroup, errors: Errors, *, slower: bool = True
) -> dict[str, float]:
    """Halves of 80 % intervals, ln, by what neither the group nor a level's factor holds.

    Of the upper half (`slower`) or of the lower one.
    """
    links_known = nearest.system and not standing.calibrated
    return {
        "software": errors.unknown_software if nearest.software == "generic" else 0.0,
        "site": errors.site if standing.software in errors.sites else 0.0,
        "system": 0.0 if links_known else Z80 * standing.exchange,
        "kernels": Z80 * standing.kernels,
        "layers": Z80 * standing.doubt.timed,
        "untimed": Z80 * standing.doubt.untimed,
        "clock": Z80 * standing.doubt.clock,
        "messages": Z80 * standing.messages,
        "libraries": 0.0 if nearest.device else Z80 * standing.libraries,
        "launches": Z80 * standing.launches,
        "uneven": standing.uneven if slower else 0.0,
    }


def basis_of(standing: Standing, nearest: NearestGroup, errors: Errors) -> Iterator[str]:
    """What people should know of where the interval came from."""
    yield _runs_of(standing, nearest.group)
    yield from _not_among(standing, nearest)
    yield from _software(standing, nearest, errors)
    yield from _distant(standing, nearest, errors)


def _runs_of(standing: Standing, group: Group) -> str:
    """How many runs the group has, on which device, under which software."""
    if group.device == CALIBRATED:
        ours = f" and {len(standing.steps)} recorded on this one" if standing.steps else ""
        return f"{group.n} runs on calibrated machines{ours}"
    device = "any device" if group.device == ANY else group.device
    every = any_software(group.software)
    words = every.replace(ANY, "any software", 1)
    software = words if group.software == every else group.software
    release = "" if group.release == ANY else f" {group.release}"
    return f"{counted(group.n, 'published run')} of {device} under {software}{release}"


def _not_among(standing: Standing, nearest: NearestGroup) -> Iterator[str]:
    """What of the plan is in none of the group's runs, and how far its release is from others."""
    group = nearest.group
    if group.irregular:
        yield (
            f"release {group.release} is irregular: one of its plans took {group.irregular:.1f} "
            "times more or less than under any other release"
        )
    if not nearest.model:
        yield f"none of a model of {standing.model}"
    if not nearest.size:
        yield "all of narrower models"
    if nearest.new_kinds:
        yield f"none with {' and '.join(nearest.new_kinds)}"
    if not nearest.device:
        yield f"none of {standing.device} among them"


def _software(standing: Standing, nearest: NearestGroup, errors: Errors) -> Iterator[str]:
    """What of the plan's software the group has not seen."""
    if nearest.software == "single":
        yield f"all of them by {nearest.group.publishers[0]}, none by anybody else"
    if nearest.software in ("elsewhere", "described"):
        yield f"none of it under {standing.software}"
    if nearest.software == "generic" and standing.generic:
        yield f"software {GENERIC}: generic assumptions"
    elif nearest.software == "generic":
        yield f"none of {standing.software} among them"
    if standing.software in errors.sites:
        yield f"sites differ under {standing.software}, which adds {_half_words(errors.site)}"
    if not nearest.release:
        yield f"none of release {standing.release}"


def _distant(standing: Standing, nearest: NearestGroup, errors: Errors) -> Iterator[str]:
    """Links, kernels and sizes that were not measured, and what a calibration says of itself."""
    added = added_halves(standing, nearest, errors)
    if added["system"] > 0.0 and not nearest.system:
        yield f"no run on system {standing.system}: its links add {_half_words(added['system'])}"
    elif added["system"] > 0.01:
        yield f"its collectives add {_half_words(added['system'])}"
    for part, words in _ADDED_WORDS.items():
        if added[part] > 0.01:
            yield f"{words} {_half_words(added[part])}"
    if added["untimed"] > 0.01:
        yield _untimed_words(standing, added["untimed"])
    yield from told_outside(standing.sizes, nearest.group.ranges, least=WORTH)


def _untimed_words(standing: Standing, half: float) -> str:
    """Whole layers that were not timed: what they add, and the most important of them."""
    missing = [part for part in standing.doubt.missing if part.share > 0.005]
    named = ", ".join(
        f"{part.kind} ({100.0 * part.share:.0f} % of the step, {part.reason})"
        for part in missing[:NAMED]
    )
    return f"whole layers that were not timed add {_half_words(half)}: {named}"


def _half_words(half: float) -> str:
    """Half of an interval for people; where a percentage would mislead, as a factor."""
    return percent(half) if half < FACTOR else f"a factor of {exp(half):.1f}"
