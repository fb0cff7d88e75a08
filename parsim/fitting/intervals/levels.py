"""What being new costs: a model, a device, a release, a kind of plan that nobody has measured.

At each level runs are left out group by group (a model's runs, a device's runs, ...): constants are
those of a fit that has not seen the group (`constants/influence.py`), figures are those of the
other runs, and the group's errors are judged by them. What the interval then lacks is the level's
figure:

    added = the weighted 80 % quantile of sqrt( max(error^2 - half^2, 0) )

so that with it four of five runs of a level lie inside. Weights are those of `groups.py`.

A formula is chosen by people who see the rows, which no refit undoes. What that hides is told by
rows that nobody had seen (KEPT_ASIDE), and no figure for a new model is smaller than they say.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import exp, expm1

import numpy as np

from parsim.arrays import Array
from parsim.fitting.constants.fit import Rows
from parsim.fitting.constants.influence import LeaveOut
from parsim.fitting.intervals.groups import Residual, groups, keyed, weighted_quantile, weights
from parsim.sim.confidence.interval import COVERAGE, standing_half
from parsim.sim.confidence.known_errors import CALIBRATED, UNSEEN, Errors, distance
from parsim.validation.coverage import Coverage, LeftOut, LevelCoverage, coverage

KEPT_ASIDE = {"model": 0.060, "mixture": 0.19}
"""Medians of |error| of runs of models that no shipped row has, predicted before anybody of parsim
had seen them (commit e222064): dense models 4 to 9 % by source (here the geometric mean), mixtures
of experts 19 %. Of a normal error the 80 % quantile is 1.9 medians."""
MEDIANS = 1.9
"""80 % quantile of |error| over its median, of a normal error: 1.2816 / 0.6745."""
FAR = 0.5
"""Runs on more than this share of a group's most devices are those beyond its scale."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """A way in which a question can be new: which groups of runs are left out together.

    `figure` is what it adds to an interval's half, among UNSEEN, or `reach` per factor e; empty
    where it adds nothing of its own.
    """

    name: str
    about: str
    groups: Callable[[Sequence[Residual]], Mapping[Hashable, list[Residual]]]
    figure: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A run whose group was left out.

    `error` is log(measured / predicted) then, `half` that of its interval on the error's side, and
    `distance` that from the sizes of the group that judges it.
    """

    run: Residual
    group: Hashable
    error: float
    half: float
    distance: float

    @property
    def bounds(self) -> tuple[float, float, tuple[float, float]]:
        """Predicted, measured and the interval, per predicted second; both halves as this one."""
        return 1.0, exp(self.error), (exp(-self.half), exp(self.half))

    @property
    def lacks(self) -> float:
        """What the half would have to be joined by for the run to lie inside."""
        return float(np.sqrt(max(self.error**2 - self.half**2, 0.0)))


def by(
    key: Callable[[Residual], Iterable[Hashable]],
) -> Callable[[Sequence[Residual]], dict[Hashable, list[Residual]]]:
    """Groups of runs by what each run has; a run may be in several."""

    def grouped(runs: Sequence[Residual]) -> dict[Hashable, list[Residual]]:
        found: dict[Hashable, list[Residual]] = {}
        for run in runs:
            for value in key(run):
                found.setdefault(value, []).append(run)
        return found

    return grouped


def _kinds(run: Residual) -> list[Hashable]:
    return [(run.software, kind) for kind in run.standing.kinds if kind != "experts"]


def _releases(run: Residual) -> list[Hashable]:
    return [(run.software, run.standing.release)] if run.standing.release else []


def _dense(run: Residual) -> list[Hashable]:
    return [] if "experts" in run.standing.kinds else [run.standing.model]


def _mixtures(run: Residual) -> list[Hashable]:
    return [run.standing.model] if "experts" in run.standing.kinds else []


def beyond(runs: Sequence[Residual]) -> dict[Hashable, list[Residual]]:
    """The runs on the most devices of each device and software, where others are on fewer."""
    found: dict[Hashable, list[Residual]] = {}
    for key, members in by(lambda run: [(run.device, run.software)])(runs).items():
        most = max(run.sizes["devices"] for run in members)
        large = [run for run in members if run.sizes["devices"] > FAR * most]
        if len(large) < len(members):
            found[key] = large
    return found


SOURCE = "source"
LEVELS = (
    Level(name="model, dense", about="no run of its layers and width", groups=by(_dense),
          figure="model"),
    Level(name="model, experts", about="no run of its layers and width", groups=by(_mixtures),
          figure="mixture"),
    Level(name="kind of plan", about="context parallel, 8 or 4 bit, ZeRO-3: new to the software",
          groups=by(_kinds), figure="kind"),
    Level(name="release", about="another release of the software", groups=by(_releases),
          figure="release"),
    Level(name="software", about="a described stack without any run",
          groups=by(lambda run: [run.software]), figure="software"),
    Level(name="device", about="a device without any run", groups=by(lambda run: [run.device]),
          figure="device"),
    Level(name="scale", about="more than twice the devices of any run", groups=beyond,
          figure="reach"),
    Level(name=SOURCE, about="everything of a table", groups=by(lambda run: [run.table])),
)  # fmt: skip
"""In the order in which their figures are computed: each with those before it."""


class Novelty:
    """Leaves groups of runs out, level by level."""

    def __init__(self, runs: Sequence[Residual], leave_out: LeaveOut | None = None) -> None:
        """Keep the runs; `leave_out` moves constants, by default those of all families."""
        self.runs, self.leave_out = runs, leave_out or LeaveOut()
        self._errors: dict[str, dict[Hashable, Array]] = {}

    def figures(self, whole: Errors) -> Errors:
        """What each level adds, for errors that say nothing of it yet."""
        errors = replace(whole, unseen=dict.fromkeys(UNSEEN, 0.0))
        for level in LEVELS:
            if level.figure:
                errors = self._with(level, errors)
        return errors

    def left_out(self, errors: Errors) -> LeftOut:
        """How intervals hold at each level, and of each source, for runs they have not seen."""
        judged = {level.name: self.judge(level, errors) for level in LEVELS}
        sources = by(lambda run: [run.table])(self.runs)
        tables: dict[str | None, Coverage] = {
            str(table): coverage(row.bounds for row in judged[SOURCE] if row.group == table)
            for table in sources
        }
        tables[None] = coverage(row.bounds for row in judged[SOURCE])
        levels = [_level_coverage(each, judged[each.name]) for each in LEVELS if judged[each.name]]
        return LeftOut(tables=tables, levels=tuple(levels))

    def judge(self, level: Level, errors: Errors) -> list[Judged]:
        """Every run of a level's groups, by constants and figures that have not seen the group.

        A group that holds all runs leaves nothing to judge it by, and is not judged.
        """
        return [
            judged
            for group, left in level.groups(self.runs).items()
            if len(left) < len(self.runs)
            for judged in self._judge_group(level, group, left, errors)
        ]

    def _judge_group(
        self, level: Level, group: Hashable, left: Sequence[Residual], errors: Errors
    ) -> Iterator[Judged]:
        keys = {id(run) for run in left}
        others = without(errors, [run for run in self.runs if id(run) not in keys])
        for run, error in zip(left, self._left_out(level, group, left), strict=True):
            nearest = others.nearest(run.standing)
            yield Judged(
                run=run,
                group=group,
                error=float(error),
                half=standing_half(run.standing, others, slower=error > 0.0),
                distance=distance(run.sizes, nearest.group.ranges),
            )

    def _left_out(self, level: Level, group: Hashable, left: Sequence[Residual]) -> Array:
        """log(measured / predicted) of runs that the constants have not seen, computed once."""
        known = self._errors.setdefault(level.name, {})
        if group not in known:
            cases = [run.case for run in left]
            values = self.leave_out.values(cases)
            known[group] = (
                -Rows(cases).errors(values) if values else np.array([run.error for run in left])
            )
        return known[group]

    def _with(self, level: Level, errors: Errors) -> Errors:
        """The errors with a level's own figure."""
        judged = self.judge(level, errors)
        if not judged:
            return errors
        each = weights([row.run for row in judged])
        if level.figure == "reach":
            far = [max(row.distance, 1e-9) for row in judged]
            lacking = np.array([row.lacks for row in judged]) / np.array(far)
            return replace(
                errors, reach=max(errors.reach, weighted_quantile(lacking, each, COVERAGE))
            )
        lacking = np.array([row.lacks for row in judged])
        added = max(weighted_quantile(lacking, each, COVERAGE), _kept_aside(level, judged, each))
        return replace(errors, unseen={**errors.unseen, level.figure: added})


def _level_coverage(level: Level, judged: Sequence[Judged]) -> LevelCoverage:
    signed = [expm1(-row.error) for row in judged]
    return LevelCoverage(
        level=level.name,
        about=level.about,
        groups=len({row.group for row in judged}),
        mean=float(np.mean(np.abs(signed))),
        bias=float(np.mean(signed)),
        coverage=coverage(row.bounds for row in judged),
    )


def _kept_aside(level: Level, judged: Sequence[Judged], each: Array) -> float:
    """What runs that nobody had seen ask for beyond the usual half of the level."""
    if level.figure not in KEPT_ASIDE:
        return 0.0
    usual = weighted_quantile(np.array([row.half for row in judged]), each, 0.5)
    return float(np.sqrt(max((MEDIANS * KEPT_ASIDE[level.figure]) ** 2 - usual**2, 0.0)))


def without(errors: Errors, others: Sequence[Residual]) -> Errors:
    """The figures of some runs alone; those of calibrated machines and of levels stay."""
    calibrated = {key: group for key, group in errors.groups.items() if key[0] == CALIBRATED}
    return replace(
        errors,
        groups={**keyed(groups(others, errors.weights)), **calibrated},
        models=frozenset(run.standing.model for run in others),
    )
