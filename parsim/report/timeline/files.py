"""Timelines as files, in the form that the suffix names, and schedules."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from parsim.errors import InputError
from parsim.plan import Plan
from parsim.report.text.summary import headline
from parsim.report.writing import check_other, check_writable, write_text, writing
from parsim.schedule import schedule_of
from parsim.timelines.timeline import Timeline

SUFFIXES = (".png", ".svg", ".html", ".json")
"""Forms of a timeline; .json is a trace for Perfetto and chrome://tracing."""


def check_suffix(path: Path) -> None:
    """Refuse a timeline file whose suffix names no form."""
    if path.suffix not in SUFFIXES:
        raise InputError(f"{path}: unknown form {path.suffix!r}; allowed: {', '.join(SUFFIXES)}")


def save_timeline(
    timeline: Timeline,
    path: Path,
    *,
    summary: Mapping[str, str],
    memory: bool = False,
    critical: bool = False,
    until: float | None = None,
) -> None:
    """Write a timeline in the form that the suffix names.

    Raises:
        InputError: unknown suffix, or a path that cannot be written.
    """
    check_suffix(path)
    check_writable(path)
    if path.suffix == ".json":
        from parsim.report.timeline.trace import save_trace

        save_trace(timeline, path)
    elif path.suffix == ".html":
        from parsim.report.page.timeline import to_html

        write_text(path, to_html(timeline, summary=summary))
    else:
        from parsim.report.picture.gantt import draw_timeline

        title = headline(timeline)
        draw_timeline(
            timeline, path=path, memory=memory, critical=critical, until=until, title=title
        )


def save_own_form(timeline: Timeline, path: Path) -> None:
    """Write what `load_timeline` reads: times and bytes as they are, not a trace."""
    with writing(path):
        timeline.save(path)


def check_own_form(path: Path, source: Path) -> None:
    """Fail before the work where a timeline cannot be saved at a path.

    Raises:
        InputError: another suffix than .json, the file that it is made from, or not writable.
    """
    if path.suffix != ".json":
        raise InputError(
            f"{path}: a timeline is saved as .json; to draw it use "
            f"`parsim timeline {source} -o {path}`"
        )
    check_other(path, source)
    check_writable(path)


def save_schedule(plan: Plan, path: Path, scenario: Path) -> None:
    """Write the actions of a plan's schedule as CSV, one line per pipeline rank.

    Raises:
        InputError: another suffix than .csv, the scenario's own file, or a path that cannot be
            written.
    """
    if path.suffix.lower() != ".csv":
        raise InputError(f"{path}: unknown form {path.suffix!r} of a schedule; allowed: .csv")
    check_other(path, scenario)
    write_text(path, schedule_of(plan).to_csv().replace("\r\n", "\n"))
