"""One HTML file with a summary and the timeline's picture in it; it needs no network to open."""

from __future__ import annotations

import re
from collections.abc import Mapping
from html import escape
from string import Template
from typing import Final

from parsim.report.picture.gantt import draw_timeline
from parsim.report.picture.saving import rendered
from parsim.timelines.timeline import Timeline

_PAGE: Final = Template("""\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>$title</title>
<style>
body { font-family: sans-serif; color: #202020; background: #ffffff; margin: 2em; }
h1 { font-size: 1.3em; }
table { border-collapse: collapse; margin: 1em 0 2em; }
th, td { padding: 0.25em 1.5em 0.25em 0; border-bottom: 1px solid #dddddd; text-align: left; }
th { font-weight: normal; color: #404040; }
td { font-variant-numeric: tabular-nums; }
figure { margin: 0; }
svg { width: 100%; height: auto; }
</style>
</head>
<body>
<h1>$title</h1>
<table>
$rows
</table>
<figure>
$picture
</figure>
</body>
</html>
""")


def to_html(timeline: Timeline, *, summary: Mapping[str, str]) -> str:
    """The timeline as one self-contained page: title, summary as a table, inline SVG.

    The title is the plan that `timeline.meta` names; memory and critical path are drawn where the
    timeline has them.

    Raises:
        InputError: the timeline has no span that takes time.
    """
    figure = draw_timeline(
        timeline,
        memory=any(curve.times for curve in timeline.memory),
        critical=bool(timeline.critical),
    )
    row = '<tr><th scope="row">{}</th><td>{}</td></tr>'
    return _PAGE.substitute(
        title=escape(str(timeline.meta.get("plan") or "Timeline")),
        rows="\n".join(row.format(*map(escape, line)) for line in summary.items()),
        picture=_inline(rendered(figure, ".svg").decode("utf-8")),
    )


def _inline(svg: str) -> str:
    """The drawing as an element of a page.

    A page needs neither the file's prologue, which names a document type on the network, nor name
    spaces; and it gives the drawing its size.
    """
    box = re.search(r'viewBox="([^"]*)"', svg)
    start = svg.index(">", svg.index("<svg")) + 1
    body = svg[start:].replace("xlink:href=", "href=").strip()
    view = f' viewBox="{box.group(1)}"' if box else ""
    return f'<svg{view} role="img" aria-label="timeline of all ranks">\n{body}'
