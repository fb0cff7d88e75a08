"""Files that are given as a scenario and are something else, with the command that takes them.

A model's config.json, tables of measurements, schedules, timelines and catalogs lie beside
scenarios, and are the first thing that somebody tries.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from parsim.errors import ScenarioError

_ACTION = re.compile(r"\s*\d+(F|B|I|W|UNSHARD|RESHARD|(SEND|RECV)_[FB])\d*\s*")
_BLOCKS = frozenset(("model", "cluster", "training"))


def is_table(path: Path) -> bool:
    """Whether a file calls itself CSV."""
    return path.suffix.lower() == ".csv"


def refuse_table(path: Path, text: str) -> None:
    """Refuse a CSV file.

    Raises:
        ScenarioError: says what the table is and which command takes it.
    """
    if is_table(path):
        raise ScenarioError(f"{path}: {_table(path, text)}")


def _table(path: Path, text: str) -> str:
    lines = [line.split(",") for line in text.splitlines() if line.strip()]
    header, name = {cell.strip() for cell in lines[0]} if lines else set(), shlex.quote(str(path))
    if any(_ACTION.fullmatch(cell) for cell in header):
        return (
            f"a schedule, not a scenario; name it in one (plan.schedule), e.g. "
            f"`parsim simulate SCENARIO --set plan.schedule={name}`"
        )
    for column, what, option in (
        ("collective", "timed collectives", "--collectives "),
        ("op", "timed kernels", "--kernels "),
    ):
        if column in header:
            return f"a table of {what}, not a scenario; use `parsim validate {option}{name}`"
    return f"a table, not a scenario; if it holds measured runs, use `parsim validate {name}`"


def refuse_document(path: Path, data: Mapping[str, Any]) -> None:
    """Refuse a mapping of another kind than a scenario; one that may be meant as one passes.

    Raises:
        ScenarioError: says what the file is and which command takes it.
    """
    wrong = None if _BLOCKS & data.keys() else _document(shlex.quote(str(path)), data)
    if wrong is not None:
        raise ScenarioError(f"{path}: {wrong}")


def _document(name: str, data: Mapping[str, Any]) -> str | None:
    if "model_type" in data or "architectures" in data:
        return (
            f"a model's config.json, not a scenario; name it in one (model.name), e.g. "
            f"`parsim simulate SCENARIO --set model.name={name}`"
        )
    if data.get("kind") == "timeline":
        return f"a saved timeline, not a scenario; use `parsim timeline {name} -o step.png`"
    if "traceEvents" in data:
        return "a trace, not a scenario; open it in Perfetto (ui.perfetto.dev)"
    if {"devices", "systems"} & data.keys():
        return (
            f"a catalog of devices and systems, not a scenario; name it in one (cluster.catalog), "
            f"or predict with it: `parsim simulate SCENARIO --device {name}`"
        )
    return None
