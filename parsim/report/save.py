"""Writing result files: clear errors for paths that cannot be written, one writer per suffix."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from parsim.errors import InputError
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


def check_other(path: Path, source: Path) -> None:
    """Refuse to write over the file that is read."""
    if path.resolve() == source.resolve():
        raise InputError(f"{path}: would overwrite the input; give another file")


def headline(timeline: Timeline) -> str:
    """Model and system, as far as the timeline names them."""
    names = [timeline.meta.get(name) for name in ("model", "system")]
    return " on ".join(str(name) for name in names if name)


def summary_of(timeline: Timeline, *, mfu: float | None = None) -> dict[str, str]:
    """The lines above an HTML timeline: what its `meta` says."""
    said = dict(_summary(timeline.meta))
    return said if mfu is None else {**said, "MFU": f"{100 * mfu:.1f} %"}


def _summary(meta: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    if meta.get("model"):
        size = f", {meta['parameters']:,} parameters" if meta.get("parameters") else ""
        yield "model", f"{meta['model']}{size}"
    for name, key in (("cluster", "system"), ("plan", "plan")):
        if meta.get(key):
            yield name, str(meta[key])
    if meta.get("step_time_s") is not None:
        yield "step time", format_seconds(meta["step_time_s"])
    if meta.get("bubble_fraction") is not None:
        yield "bubble", f"{100 * meta['bubble_fraction']:.1f} % of the pipeline phase"
    if peak := meta.get("peak_allocated_bytes"):
        yield "peak memory", format_bytes(max(peak) if isinstance(peak, list) else peak)
