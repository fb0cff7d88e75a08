"""Figures as files: how all pictures look, and PNG and SVG without dates, equal byte for byte."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import matplotlib
from matplotlib.figure import Figure

from parsim.errors import InputError
from parsim.report.picture.grid import DPI, POINTS
from parsim.report.picture.legend import FONT
from parsim.report.writing import check_writable, writing

STYLE: Final[Any] = {  # Any, for matplotlib's stubs differ from release to release
    "svg.hashsalt": "parsim",
    "svg.fonttype": "path",
    "font.family": [FONT],
    "font.size": POINTS,
    "hatch.linewidth": 0.7,
    "text.parse_math": False,  # a plan's name may hold a $
    "axes.linewidth": 0.6,
}
"""How all pictures look: parameters of matplotlib."""

_METADATA: Final[Mapping[str, Mapping[str, Any]]] = {
    ".png": {"Software": None},
    ".svg": dict.fromkeys(("Date", "Creator", "Format", "Type")),
}


def check_picture(path: Path | None) -> None:
    """Refuse a picture that cannot be written, before the work; none is to be where None.

    Raises:
        InputError: a suffix that names no form of a picture, or a path that cannot be written.
    """
    if path is None:
        return
    if path.suffix.lower() not in _METADATA:
        raise InputError(
            f"cannot draw to {path}: suffix '{path.suffix}'; allowed: {', '.join(_METADATA)}"
        )
    check_writable(path)


def save_picture(figure: Figure, path: Path | None, dpi: int | None = None) -> None:
    """Write a figure as the `.png` or `.svg` that the path names; none where None.

    Raises:
        InputError: the file cannot be written.
    """
    if path is None:
        return
    content = rendered(figure, path.suffix.lower(), dpi)
    with writing(path):
        path.write_bytes(content)


def rendered(figure: Figure, suffix: str, dpi: int | None = None) -> bytes:
    """The figure as the content of a file; what is pixels in an SVG is sharp when enlarged."""
    content = io.BytesIO()
    usual = 2 * DPI if suffix == ".svg" else DPI
    with matplotlib.rc_context(STYLE):
        figure.savefig(
            content, format=suffix[1:], dpi=dpi or usual, metadata=dict(_METADATA[suffix])
        )
    return content.getvalue()
