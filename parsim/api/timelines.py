"""Timelines of steps, predicted or saved, and what two of them differ in."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from parsim.api.plans import simulate
from parsim.arguments import PATH, File, check_kind, check_number
from parsim.errors import InputError

if TYPE_CHECKING:
    from parsim.comparison.compared import TimelineComparison
    from parsim.plan import Plan
    from parsim.scenario import Scenario
    from parsim.sim.prediction import Prediction
    from parsim.timelines.timeline import Timeline


def timeline(source: Scenario | File, plan: Plan | None = None) -> Timeline:
    """What every pipeline rank does when: predicted for a scenario, or as it was saved.

    Args:
        source: a scenario, its file, or a timeline's file (of `parsim simulate --timeline` or
            `parsim run`).
        plan: a legal plan; the scenario's where not given.

    Raises:
        InputError: the file is wrong, or the scenario has no plan and none is given.
        PlanError: the plan is not legal.
    """
    from parsim.scenario import Scenario, load_scenario
    from parsim.timelines.reader import is_timeline, load_timeline

    if not isinstance(source, Scenario):
        check_kind("source", source, PATH, "a scenario, its file, or a timeline's file")
        if plan is None and is_timeline(Path(source)):
            return load_timeline(Path(source))
        source = load_scenario(Path(source))
    return _timeline("source", simulate(source, plan))


def compare(
    predicted: Prediction | Timeline | File,
    measured: Timeline | File,
    *,
    tolerance: float = 0.1,
) -> TimelineComparison:
    """Compare a predicted step with its measurement: signed errors of every quantity.

    Args:
        predicted: a prediction, its timeline, or a timeline's file.
        measured: a timeline, or its file.
        tolerance: the largest error of step time and peak memory for `within_tolerance`.

    Raises:
        InputError: a file is no timeline, the timelines have no rank in common, or the tolerance
            is no share.
    """
    from parsim.comparison.timelines import compare_timelines

    check_number("tolerance", tolerance)
    both = _timeline("predicted", predicted), _timeline("measured", measured)
    return compare_timelines(*both, tolerance=tolerance)


def _timeline(name: str, source: Prediction | Timeline | File) -> Timeline:
    """The timeline that is given, or that a prediction or a file holds."""
    from parsim.sim.prediction import Prediction
    from parsim.timelines.reader import load_timeline
    from parsim.timelines.timeline import Timeline

    if isinstance(source, Timeline):
        return source
    if not isinstance(source, Prediction):
        check_kind(name, source, PATH, "a prediction, a timeline, or a timeline's file")
        return load_timeline(Path(source))
    if source.timeline is None:
        raise InputError("the prediction was made without a timeline; use timeline=True")
    return source.timeline
