"""One HTML file with a summary and the timeline's picture in it; it needs no network to open."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from html import escape
from typing import Final

from parsim.report.page.document import drawing, page
from parsim.report.picture.gantt import draw_timeline
from parsim.report.picture.saving import rendered
from parsim.timelines.timeline import Timeline

LABEL: Final = "timeline of all ranks"


def to_html(timeline: Timeline, *, summary: Mapping[str, str]) -> str:
    """The timeline as one self-contained page: title, summary as a table, inline SVG.

    The title is the plan that `timeline.meta` names; memory and critical path are drawn where the
    timeline has them.

    Raises:
        InputError: the timeline has no span that takes time.
    """
    row = '<tr><th scope="row">{}</th><td>{}</td></tr>'
    rows = "\n".join(row.format(*map(escape, line)) for line in summary.items())
    figure = draw_timeline(timeline, memory=_remembers(timeline), critical=bool(timeline.critical))
    svg = rendered(figure, ".svg").decode("utf-8")
    body = f"<table>\n{rows}\n</table>\n<figure>\n{drawing(svg, LABEL)}\n</figure>"
    return page(str(timeline.meta.get("plan") or "Timeline"), body)


def timeline_image(timeline: Timeline, *, memory: bool = False) -> str:
    """A timeline's picture inside a page: pixels, for ten thousand spans are 2 MB as lines.

    With `memory` also its curves of memory, where it has any.
    """
    figure = draw_timeline(timeline, memory=memory and _remembers(timeline))
    png = b64encode(rendered(figure, ".png")).decode("ascii")
    return f'<img alt="{LABEL}" src="data:image/png;base64,{png}">'


def _remembers(timeline: Timeline) -> bool:
    return any(curve.times for curve in timeline.memory)
