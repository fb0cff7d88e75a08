"""A self-contained page: its style, its title, and drawings as elements of it."""

from __future__ import annotations

import re
from html import escape
from string import Template
from typing import Final

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
h2 { font-size: 1.1em; margin-top: 2em; border-bottom: 2px solid #202020; }
table { border-collapse: collapse; margin: 1em 0 2em; }
th, td { padding: 0.25em 1.5em 0.25em 0; border-bottom: 1px solid #dddddd; text-align: left; }
th { font-weight: normal; color: #404040; }
td { font-variant-numeric: tabular-nums; }
figure { margin: 0; }
svg { width: 100%; height: auto; }
$style</style>
</head>
<body>
<h1>$title</h1>
$body
</body>
</html>
""")


def page(title: str, body: str, *, style: str = "") -> str:
    """A page of a title and a body, which is HTML; `style` are further rules of its look."""
    return _PAGE.substitute(title=escape(title), body=body, style=style)


def drawing(svg: str, label: str) -> str:
    """The text of an SVG file as an element of a page, described by a label.

    A page needs neither the file's prologue, which names a document type on the network, nor name
    spaces; and it gives the drawing its size.
    """
    box = re.search(r'viewBox="([^"]*)"', svg)
    start = svg.index(">", svg.index("<svg")) + 1
    body = svg[start:].replace("xlink:href=", "href=").strip()
    view = f' viewBox="{box.group(1)}"' if box else ""
    return f'<svg{view} role="img" aria-label="{escape(label)}">\n{body}'
