"""What `parsim timeline` draws: a saved timeline, or the prediction of a scenario's plan."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from parsim.errors import InputError
from parsim.report.save import check_writable, summary_of
from parsim.scenario import Scenario
from parsim.sim import simulate
from parsim.timeline import Timeline
from parsim.timeline_reader import is_timeline, load_timeline

Drawable = tuple[Timeline, dict[str, str]]
"""A timeline, and the lines of its summary."""


def saved(path: Path, overrides: Sequence[str] | None) -> Drawable | None:
    """The timeline in a file; None where the file does not say that it is one.

    Raises:
        InputError: it says so and is none, or fields of a scenario are to be set in it.
    """
    if not is_timeline(path):
        return None
    if overrides:
        raise InputError(f"{path}: a saved timeline has no fields to --set; leave --set out")
    timeline = load_timeline(path)
    return timeline, summary_of(timeline)


def predicted(found: Scenario, output: Path, note: Callable[[str], None]) -> Drawable:
    """The timeline of a scenario's plan; what a reader must know of it goes to `note`."""
    plan = found.fixed_plan()
    check_writable(output)
    prediction = simulate(found.job, plan, timeline=True)
    if not prediction.fits():
        note("note: this plan does not fit the devices; see parsim simulate")
    if prediction.timeline is None:
        raise RuntimeError("simulate returned no timeline")
    return prediction.timeline, summary_of(prediction.timeline, mfu=prediction.mfu)
