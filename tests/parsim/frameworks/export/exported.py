"""Plans that are exported, and the names that frameworks know."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

from parsim.plan import Plan
from parsim.scenario import Scenario
from tests.commands import ROOT

NAMES = Path(__file__).parent.parent / "names"
MIXTURE = str(ROOT / "scenarios" / "qwen3-30b-a3b-dgx-h100.yaml")


def names(file: str) -> dict[str, list[str]]:
    """Names read from a release of the framework; `source` says which."""
    document: dict[str, list[str]] = json.loads((NAMES / file).read_text(encoding="utf-8"))
    return document


def planned(scenario: Scenario, **changes: Any) -> Plan:
    return replace(scenario.fixed_plan(), **changes)


def flags_of(text: str) -> dict[str, list[str]]:
    """The flags of the array, and what stands behind each."""
    body = text[text.index("(") + 1 : text.rindex(")")]
    flags: dict[str, list[str]] = {}
    for line in body.strip().splitlines():
        name, *values = shlex.split(line)
        assert name not in flags
        flags[name] = values
    return flags
