"""What being new costs: a model, a device, a release, a kind of plan that nobody has measured.

At each level runs are left out group by group (a model's runs, a device's runs, ...): constants are
those of a fit that has not seen the group (`constants/influence.py`), figures are those of the
other runs, and the group's errors are judged by them. A level's factor makes four of five lie
inside:

    factor = the 80 % quantile over the level's runs of  sqrt( max(error^2 - added^2, 0) ) / base

with the halves of `sim/confidence/interval.py`, every run counting once: a quantile of errors in
units of the bar that the rest asks for, as split conformal prediction has it. It may be below 1,
for bars of few runs are wide; what is new is never surer than what is known.

Tables differ in more than their rows: each has its cluster, its people and its way of timing. So a
level's coverage is that of factors that have not seen the table of the run (`Novelty.left_out`);
with those of all tables it would be four of five by construction.

Leaves out: that formulas were chosen by people who saw the rows, which no refit undoes. Tables that
nobody has looked at stay unseen; their coverage stands apart, in the report of accuracy.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from math import exp, expm1

import numpy as np

from parsim.arrays import Array
from parsim.fitting.constants.fit import Rows
from parsim.fitting.constants.influence import LeaveOut
from parsim.fitting.intervals.groups import SHRINK, Residual, groups, keyed, quantile
from parsim.sim.confidence.interval import Half, half_of
from parsim.sim.confidence.known_errors import CALIBRATED, KNOWN, WIDTH, Errors
from parsim.validation.coverage import Coverage, LeftOut, LevelCoverage, coverage

FOLDS = 10
"""Parts of which each is left out once, where nothing about a question is new."""
ORDER = ("release", "model", "mixture", "kind", "size", "software", "device")
"""Levels by how little is known where they are new, as their factors come out."""
NOT_BELOW = {"size": "model", "mixture": "model"}
"""Levels that are new in more than another, whose factor theirs is not below; KNOWN's else."""
AGREED = 0.02
"""Growth of the reach, as a share of it, below which no other figure is computed again."""
FAR = 0.5
"""Runs on more than this share of a group's most devices are those beyond its scale."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """A way in which a question can be new: which groups of runs are left out together.

    `figure` is the one of LEVELS whose factor it gives, or `reach` per factor e; empty where it
    gives nothing of its own. Where `only`, runs that are new in another way too are not judged,
    and where it gives a factor those that it decides: new in its way, and in none less known.
    """

    name: str
    about: str
    groups: Callable[[Sequence[Residual]], Mapping[Hashable, list[Residual]]]
    figure: str = ""
    only: bool = False

    def decides(self, new: Sequence[str]) -> bool:
        """Whether a run that is new in these of LEVELS, its group left out, says how wide it is."""
        if self.figure in ORDER:
            return max(new, key=ORDER.index, default="") == self.figure
        return not (self.only and new)


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A run whose group was left out.

    `error` is log(measured / predicted) then, `half` what that of its interval on the error's side
    is made of.
    """

    run: Residual
    group: Hashable
    error: float
    half: Half

    def bounds(self, errors: Errors) -> tuple[float, float, tuple[float, float]]:
        """Predicted, measured and the interval, per predicted second; both halves as this one."""
        half = self.half.value(errors)
        return 1.0, exp(self.error), (exp(-half), exp(half))

    def factor(self, reach: float) -> float:
        """What its group's half would have to be times for the run to lie inside."""
        added = self.half.added**2 + (reach * self.half.distance) ** 2
        return float(np.sqrt(max(self.error**2 - added, 0.0))) / self.half.base

    def reach(self, errors: Errors) -> float:
        """What its distance would have to be times for the run to lie inside."""
        near = replace(self.half, distance=0.0).value(errors)
        return float(np.sqrt(max(self.error**2 - near**2, 0.0))) / max(self.half.distance, 1e-9)


def by(
    key: Callable[[Residual], Iterable[Hashable]],
) -> Callable[[Sequence[Residual]], dict[Hashable, list[Residual]]]:
    """Groups of runs by what each run has; a run may be in several."""

    def grouped(runs: Sequence[Residual]) -> dict[Hashable, list[Residual]]:
        groups: dict[Hashable, list[Residual]] = {}
        for run in runs:
            for value in key(run):
                groups.setdefault(value, []).append(run)
        return groups

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
    groups: dict[Hashable, list[Residual]] = {}
    for key, members in by(lambda run: [(run.device, run.software)])(runs).items():
        most = max(run.sizes["devices"] for run in members)
        large = [run for run in members if run.sizes["devices"] > FAR * most]
        if len(large) < len(members):
            groups[key] = large
    return groups


def widest(runs: Sequence[Residual]) -> dict[Hashable, list[Residual]]:
    """The runs of the widest dense models of a device and software, where others are narrower."""
    groups: dict[Hashable, list[Residual]] = {}
    dense = [run for run in runs if _dense(run)]
    for key, members in by(lambda run: [(run.device, run.software)])(dense).items():
        most = max(run.sizes[WIDTH] for run in members)
        wide = [run for run in members if run.sizes[WIDTH] == most]
        if len(wide) < len(members):
            groups[key] = wide
    return groups


def stacks(runs: Sequence[Residual]) -> dict[Hashable, list[Residual]]:
    """The runs of each software, and those on one device where it has others elsewhere."""
    everywhere = by(lambda run: [run.software])(runs)
    here = by(lambda run: [(run.device, run.software)])(runs)
    apart = {
        key: left for key, left in here.items() if len(left) < len(everywhere[left[0].software])
    }
    return {**everywhere, **apart}


def folds(runs: Sequence[Residual]) -> dict[Hashable, list[Residual]]:
    """FOLDS parts of the cells, whole cells each, so that no repeat tells what is left out."""
    number = {cell: at % FOLDS for at, cell in enumerate(sorted({run.cell for run in runs}))}
    return by(lambda run: [number[run.cell]])(runs)


SOURCE = "source"
KNOWN_LEVEL = Level(name="nothing", about="other runs of its model, device and release",
                    groups=folds, figure=KNOWN, only=True)  # fmt: skip
LEVELS = (
    KNOWN_LEVEL,
    Level(name="model, dense", about="no run of its layers and width", groups=by(_dense),
          figure="model"),
    Level(name="model, experts", about="no run of its layers and width", groups=by(_mixtures),
          figure="mixture"),
    Level(name="kind of plan", about="context parallel, 8 or 4 bit, ZeRO-3: new to the software",
          groups=by(_kinds), figure="kind"),
    Level(name="size", about="a dense model wider than any of the software on the device",
          groups=widest, figure="size"),
    Level(name="release", about="another release of the software", groups=by(_releases),
          figure="release"),
    Level(name="software", about="a described stack without any run, or any on the device",
          groups=stacks, figure="software"),
    Level(name="device", about="a device without any run", groups=by(lambda run: [run.device]),
          figure="device"),
    Level(name="scale", about="more than twice the devices of any run", groups=beyond,
          figure="reach"),
    Level(name=SOURCE, about="everything of a table", groups=by(lambda run: [run.table])),
)  # fmt: skip
"""A level's factor comes after those that it is not below; a release's alone may be below 1."""


class Novelty:
    """Leaves groups of runs out, level by level."""

    def __init__(
        self, runs: Sequence[Residual], whole: Errors, leave_out: LeaveOut | None = None
    ) -> None:
        """Keep runs and their figures; `leave_out` moves constants, by default all families'."""
        self.runs, self.whole, self.leave_out = runs, whole, leave_out or LeaveOut()
        self.figures = cache(self._figures)

    @cached_property
    def judged(self) -> dict[str, list[Judged]]:
        """Every run of each level's groups, by constants and figures without the group.

        A group that holds all runs leaves nothing to judge it by, and is not judged.
        """
        return {
            level.name: [
                judged
                for group, left in level.groups(self.runs).items()
                if len(left) < len(self.runs)
                for judged in self._judge_group(group, left)
                if level.decides(judged.half.levels or ())
            ]
            for level in LEVELS
        }

    def _judge_group(self, group: Hashable, left: Sequence[Residual]) -> Iterator[Judged]:
        keys = {id(run) for run in left}
        others = without(self.whole, [run for run in self.runs if id(run) not in keys])
        for run, error in zip(left, self._left_out(left), strict=True):
            half = half_of(run.standing, others, slower=error > 0.0)
            yield Judged(run=run, group=group, error=float(error), half=half)

    def _left_out(self, left: Sequence[Residual]) -> Array:
        """log(measured / predicted) of runs that the constants have not seen."""
        cases = [run.case for run in left]
        values = self.leave_out.values(cases)
        return -Rows(cases).errors(values) if values else np.array([run.error for run in left])

    def _figures(self, unseen: str = "") -> Errors:
        """The figures with each level's factor and reach, as all tables but `unseen` ask for.

        Factors widen a half that the reach is part of, and the reach adds to halves that they
        widened: they are computed in turn until they agree.
        """
        reach, errors = self.whole.reach, self._figures_beside(self.whole, unseen)
        while errors.reach > (1.0 + AGREED) * reach:
            reach = errors.reach
            errors = self._figures_beside(errors, unseen)
        return errors

    def _figures_beside(self, errors: Errors, unseen: str) -> Errors:
        """Each level's figure in its turn, beside those of the others as they are by then."""
        for level in LEVELS:
            seen = [row for row in self.judged[level.name] if row.run.table != unseen]
            if level.figure:
                errors = with_level(errors, level.figure, seen)
        return errors

    def left_out(self) -> LeftOut:
        """How intervals hold at each level, by figures that have not seen the run's table."""
        sources = {run.table for run in self.runs}
        everything = self.judged[SOURCE]
        tables: dict[str | None, Coverage] = {
            table: self._coverage([row for row in everything if row.group == table])
            for table in sorted(sources)
        }
        tables[None] = self._coverage(everything)
        levels = [self._level(each) for each in LEVELS if self.judged[each.name]]
        return LeftOut(tables=tables, levels=tuple(levels))

    def _coverage(self, judged: Sequence[Judged]) -> Coverage:
        return coverage(row.bounds(self.figures(row.run.table)) for row in judged)

    def _level(self, level: Level) -> LevelCoverage:
        judged, shipped = self.judged[level.name], self.figures()
        signed = [expm1(-row.error) for row in judged]
        cells: dict[str, list[float]] = {}
        for row, error in zip(judged, signed, strict=True):
            cells.setdefault(row.run.cell, []).append(error)
        return LevelCoverage(
            level=level.name,
            about=level.about,
            groups=len({row.group for row in judged}),
            mean=float(np.mean(np.abs(signed))),
            bias=float(np.mean(signed)),
            seen=coverage(row.bounds(shipped) for row in judged).covered,
            cells=len(cells),
            cell_error=float(np.median([np.mean(np.abs(cell)) for cell in cells.values()])),
            coverage=self._coverage(judged),
        )


def with_level(errors: Errors, figure: str, judged: Sequence[Judged]) -> Errors:
    """The errors with a level's figure, which stays where no run is judged.

    Nothing new is surer than what is known, or than what is new in less (NOT_BELOW). A release
    alone may be: a plan of an unknown one is judged by all releases together, which scatter more
    than those of one. As small groups do, it leans on what is known where few releases say so.
    Of runs beyond a group's scale, those of one cell say the same: they count as one.
    """
    each = np.ones(len(judged))
    if figure == "reach":
        count, sizes = len({row.run.cell for row in judged}), [row.reach(errors) for row in judged]
        asked = [quantile(np.array(sizes), each, count)] if judged else []
        return replace(errors, reach=max([errors.reach, *asked]))
    factor, least = errors.factors[figure], errors.factors[NOT_BELOW.get(figure, KNOWN)]
    if judged:
        factor = quantile(np.array([row.factor(errors.reach) for row in judged]), each)
    if figure == "release":
        count = len({row.group for row in judged})
        least = (count * factor + SHRINK * least) / (count + SHRINK)
    if figure != KNOWN:
        factor = max(factor, least)
    return replace(errors, factors={**errors.factors, figure: factor})


def without(errors: Errors, others: Sequence[Residual]) -> Errors:
    """The figures of some runs alone; those of calibrated machines and of levels stay."""
    calibrated = {key: group for key, group in errors.groups.items() if key[0] == CALIBRATED}
    return replace(
        errors,
        groups={**keyed(groups(others, errors.weights)), **calibrated},
        models=frozenset(run.standing.model for run in others),
    )
