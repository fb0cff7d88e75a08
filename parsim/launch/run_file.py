"""Reads what `parsim run` wrote of a run: its document and the timeline of its recorded step."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any

from parsim.errors import InputError, shown
from parsim.files import read_json
from parsim.timelines.reader import load_timeline
from parsim.timelines.timeline import Timeline


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What a run's document says, and the timeline of its recorded step.

    `step_time` is the median of `n` timed steps, `scenario` the text of what ran, of a `file` of
    that name, with `sets` over it, and `device` the name of the hardware. Of text and device None
    is what the document does not say.
    """

    path: Path
    plan: Any
    step_time: float
    n: int
    date: str
    scenario: str | None
    file: str
    sets: Mapping[str, str]
    device: str | None
    timeline: Timeline


def read_run(path: Path) -> Run:
    """Read a `run.json` (or the one in a folder) and the timeline beside it.

    Raises:
        InputError: it is no document of `parsim run`, or no step of it was timed.
    """
    path = path / "run.json" if path.is_dir() else path
    document, timeline = read_json(path), path.with_name("timeline.json")
    if not isinstance(document, dict):
        raise InputError(f"{path} is no run.json of `parsim run`: it is no JSON object")
    try:
        fields = _fields(path, document)
    except KeyError as error:
        raise InputError(f"{path} is no run.json of `parsim run`: it has no {error}") from None
    except (ArithmeticError, AttributeError, TypeError, ValueError) as error:
        raise InputError(f"{path} is no run.json of `parsim run` ({shown(error)})") from None
    if not fields["n"]:
        raise InputError(f"{path} has no timed step (n = 0); run it with more --steps")
    if not timeline.exists():
        raise InputError(f"{timeline} is missing; it holds the recorded step of {path}")
    return Run(path=path, timeline=load_timeline(timeline), **fields)


def _fields(path: Path, document: Any) -> dict[str, Any]:  # noqa: ANN401 - whatever was written
    """The fields of a `Run` that its document has."""
    step, meta = document["measured"]["step_time_s"], document.get("meta", {})
    scenario, count = meta.get("scenario", {}), int(step["n"])
    text, device = scenario.get("text"), meta.get("host", {}).get("device")
    if not all(isinstance(value, str | None) for value in (text, device)):
        raise ValueError("its scenario or device is no text")
    file = Path(scenario.get("file") or "scenario.yaml").name
    if file in ("", "..") or "\0" in file or len(file.encode()) > 255:
        raise ValueError("its scenario's file has no name")
    median = float(step["median"]) if count else inf
    if count and not 0.0 < median < inf:
        raise ValueError(f"median {median:g} is no time")
    return {
        "plan": document["plan"],
        "step_time": median,
        "n": count,
        "date": _date(path, meta),
        "scenario": text,
        "file": file,
        "sets": dict(pair.split("=", 1) for pair in scenario.get("set", ())),
        "device": device,
    }


def _date(path: Path, meta: Mapping[str, Any]) -> str:
    """The day of the run, of its file where the run does not say."""
    written = datetime.date.fromtimestamp(path.stat().st_mtime)
    stated = str(meta.get("ended_at", ""))[:10]
    return datetime.date.fromisoformat(stated or written.isoformat()).isoformat()
