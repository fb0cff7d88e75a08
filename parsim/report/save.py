"""Writing result files: clear errors for paths that cannot be written, one writer per suffix."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from parsim.errors import InputError
from parsim.sim.prediction import Prediction
from parsim.timeline import Timeline
from parsim.units import format_bytes, format_seconds

SUFFIXES = (".png", ".svg", ".html", ".json")
"""Forms of a timeline; .json is a trace for Perfetto and chrome://tracing."""


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Make the folder of an output file; say what is wrong where the file cannot be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield
    except (FileExistsError, NotADirectoryError):
        raise InputError(f"{path}: cannot write: {path.parent} is not a folder") from None
    except OSError as reason:
        raise InputError(f"{path}: cannot write: {reason.strerror}") from None


def check_writable(path: Path) -> None:
    """Fail before the work, not after it, where a file cannot be written."""
    with writing(path):
        new = not path.exists()
        path.open("ab").close()
        if new:
            path.unlink()


def write_text(path: Path, text: str) -> None:
    """Write a text file."""
    with writing(path):
        path.write_text(text, encoding="utf-8")


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
        from parsim.report.trace import save_trace

        save_trace(timeline, path)
    elif path.suffix == ".html":
        from parsim.report.html import to_html

        write_text(path, to_html(timeline, summary=summary))
    else:
        from parsim.report.gantt import draw_timeline

        title = f"{timeline.meta['model']} on {timeline.meta['system']}"
        draw_timeline(
            timeline, path=path, memory=memory, critical=critical, until=until, title=title
        )


def summary_of(found: Prediction, timeline: Timeline) -> dict[str, str]:
    """The lines above an HTML timeline."""
    return {
        "model": f"{timeline.meta['model']}, {timeline.meta['parameters']:,} parameters",
        "cluster": str(timeline.meta["system"]),
        "plan": found.plan.label(),
        "step time": format_seconds(found.step_time),
        "bubble": f"{100 * found.bubble_fraction:.1f} % of the pipeline phase",
        "MFU": f"{100 * found.mfu:.1f} %",
        "peak memory": format_bytes(max(found.peak_allocated)),
    }
