"""What a timeline says of itself in `meta`, as words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rich.table import Table

from parsim.comparison.compared import drawn_step
from parsim.report.text.tables import pairs
from parsim.timelines.timeline import Timeline
from parsim.units import format_bytes, format_seconds, percent


def rank_labels(timeline: Timeline) -> dict[int, str]:
    """Texts that `meta` gives for ranks; its keys are texts once it has been through JSON."""
    return {int(rank): str(text) for rank, text in timeline.meta.get("rank_labels", {}).items()}


def headline(timeline: Timeline) -> str:
    """Model and system, as far as the timeline names them."""
    names = [timeline.meta.get(name) for name in ("model", "system")]
    return " on ".join(str(name) for name in names if name)


def summary_of(timeline: Timeline, *, mfu: float | None = None) -> dict[str, str]:
    """The lines above an HTML timeline: what its `meta` says."""
    lines = dict(_summary(timeline.meta))
    return lines if mfu is None else {**lines, "MFU": percent(mfu)}


def timeline_view(timeline: Timeline) -> Table:
    """What the timeline says of itself, and how much it holds."""
    ranks, spans = len(timeline.ranks), len(timeline.spans)
    size = f"{spans:,} spans of {ranks:,} ranks in {format_seconds(timeline.end)}"
    return pairs([*summary_of(timeline).items(), ("holds", size)])


def _summary(meta: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    if meta.get("model"):
        size = f", {meta['parameters']:,} parameters" if meta.get("parameters") else ""
        yield "model", f"{meta['model']}{size}"
    for name, key in (("cluster", "system"), ("plan", "plan")):
        if meta.get(key):
            yield name, str(meta[key])
    if meta.get("step_time_s") is not None:
        drawn = drawn_step(meta)
        median = f", the median; {drawn}" if drawn else ""
        yield "step time", f"{format_seconds(meta['step_time_s'])}{median}"
    if meta.get("bubble_fraction") is not None:
        yield "bubble", f"{percent(meta['bubble_fraction'])} of the pipeline phase"
    if peak := meta.get("peak_allocated_bytes"):
        yield "peak memory", format_bytes(max(peak) if isinstance(peak, list) else peak)
