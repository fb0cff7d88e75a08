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

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from math import exp, expm1

import numpy as np

from parsim.arrays import Array
from parsim.fitting.constants.fit import Rows
from parsim.fitting.constants.influence import LeaveOut
from parsim.fitting.intervals.groups import SHRINK, groups, keyed
from parsim.fitting.intervals.levels import LEVELS, SOURCE, Level
from parsim.fitting.intervals.residuals import Residual, quantile
from parsim.sim.confidence.interval import Half, half_of
from parsim.sim.confidence.known_errors import CALIBRATED, KNOWN, Errors
from parsim.validation.coverage import Coverage, LeftOut, LevelCoverage, coverage
from parsim.validation.step.case import Case

NOT_BELOW = {"size": "model", "mixture": "model"}
"""Levels that are new in more than another, whose factor theirs is not below; KNOWN's else."""
AGREED = 0.02
"""Growth of the reach, as a share of it, below which no other figure is computed again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOutRun:
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


class Novelty:
    """Leaves groups of runs out, level by level."""

    def __init__(
        self, runs: Sequence[Residual], whole: Errors, leave_out: LeaveOut | None = None
    ) -> None:
        """Keep runs and their figures; `leave_out` moves constants, by default all families'."""
        self.runs, self.whole, self.leave_out = runs, whole, leave_out or LeaveOut()
        self.figures = cache(self._figures)

    @cached_property
    def judged(self) -> dict[str, list[LeftOutRun]]:
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

    def _judge_group(self, group: Hashable, left: Sequence[Residual]) -> Iterator[LeftOutRun]:
        keys = {id(run) for run in left}
        others = without(self.whole, [run for run in self.runs if id(run) not in keys])
        for run, error in zip(left, self._left_out(left), strict=True):
            half = half_of(run.standing, others, slower=error > 0.0)
            yield LeftOutRun(run=run, group=group, error=float(error), half=half)

    def _left_out(self, left: Sequence[Residual]) -> Array:
        """log(measured / predicted) of runs that the constants have not seen."""
        cases = [run.case for run in left if isinstance(run.case, Case)]
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

    def _coverage(self, judged: Sequence[LeftOutRun]) -> Coverage:
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


def with_level(errors: Errors, figure: str, judged: Sequence[LeftOutRun]) -> Errors:
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
