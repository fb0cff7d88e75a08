"""Quantiles of scaled errors per device, per software, per both, and per release."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from parsim.fitting.intervals.departures import departures, released
from parsim.fitting.intervals.residuals import Residual, half, independent, sorted_by, weights
from parsim.sim.confidence.known_errors import ANY, Group, Key, any_software

SHRINK = 5.0
"""A group of so many independent runs counts half, the usual bounds the other half."""


def keyed(groups: Iterable[Group]) -> dict[Key, Group]:
    """Groups by what `Errors` looks them up by."""
    return {(group.device, group.software, group.release): group for group in groups}


def groups(runs: Sequence[Residual], hard: Mapping[str, float]) -> list[Group]:
    """All runs, then per device, per software, per both, and these per stated release.

    Mixtures count apart from dense models, on a device as under a software. Small groups lean on
    the usual one, the median over devices and software (releases on all of theirs), where they are
    narrower: few runs see few of the errors there are. Irregular runs count in the group of their
    own release alone: they say nothing of others.
    """
    departs = departures(runs)
    usual_runs = [run for run, departs_by in zip(runs, departs, strict=True) if not departs_by]
    both = sorted_by(usual_runs, lambda run: (run.device, run.software, ANY))
    usual = float(np.median([half(members, hard) for _, members in both]))
    keyed = [
        *sorted_by(usual_runs, lambda run: (ANY, ANY, ANY)),
        *sorted_by(usual_runs, lambda run: (run.device, any_software(run.software), ANY)),
        *sorted_by(usual_runs, lambda run: (ANY, run.software, ANY)),
        *both,
    ]
    grouped = [_group(key, members, hard, usual) for key, members in keyed]
    whole = {(group.device, group.software): group.half for group in grouped}
    return [*grouped, *_releases(runs, departs, hard, whole, usual)]


def _releases(
    runs: Sequence[Residual],
    departs: Sequence[float],
    hard: Mapping[str, float],
    whole: Mapping[tuple[str, str], float],
    usual: float,
) -> Iterator[Group]:
    """A group for each stated release of a software on a device."""
    most: dict[Key, float] = {}
    for run, departs_by in zip(runs, departs, strict=True):
        most[released(run)] = max(departs_by, most.get(released(run), 0.0))
    for key, members in sorted_by([run for run in runs if run.standing.release], released):
        group = _group(key, members, hard, whole.get(key[:2], usual))
        yield replace(group, irregular=most[key])


def _group(key: Key, runs: Sequence[Residual], hard: Mapping[str, float], usual: float) -> Group:
    count, mine = independent(weights(runs)), half(runs, hard)
    return Group(
        device=key[0],
        software=key[1],
        release=key[2],
        n=len(runs),
        half=max(mine, (count * mine + SHRINK * usual) / (count + SHRINK)),
        ranges=ranges_of(runs),
        systems=tuple(sorted({name for run in runs for name in _systems(run)})),
        kinds=tuple(sorted({kind for run in runs for kind in run.standing.kinds})),
        publishers=tuple(sorted({run.standing.publisher for run in runs})),
    )


def ranges_of(runs: Sequence[Residual]) -> dict[str, tuple[float, float]]:
    """Least and largest of each size."""
    return {
        size: (min(run.sizes[size] for run in runs), max(run.sizes[size] for run in runs))
        for size in runs[0].sizes
    }


def _systems(run: Residual) -> tuple[str, str]:
    """The run's own system, and the one whose constants predicted it."""
    return run.standing.system, run.case.job.system.id
