"""A small saved timeline to spoil."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path

from tests.commands import SMALL


@cache
def saved_timeline() -> str:
    """What `simulate --timeline` writes for the smallest shipped scenario."""
    from parsim import api

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t.json"
        api.timeline(SMALL).save(path)
        return path.read_text(encoding="utf-8")
