"""How far predictions for a device and software have been from published runs.

The figures are computed by `make reports` from every shipped row and kept in `evidence.json`, so
that each prediction can say what it rests on without predicting a thousand runs first. They are
not an interval for the plan at hand: its shape may be unlike those of the table.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from parsim.cost.job import EXPERTS, Job
from parsim.validation.compare import Validation
from parsim.validation.comparison import Comparison
from parsim.validation.summary import summarise

ANY = "any"
"""Software name of the figures over all software stacks of a device."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Step-time errors of published runs of one device and software (fractions)."""

    device: str
    software: str
    n: int
    mean_abs_error: float
    max_abs_error: float
    bias: float

    def to_json(self) -> dict[str, Any]:
        """Plain data for `--json`."""
        return asdict(self)

    def sentence(self) -> str:
        """One line for people."""
        under = self.software
        if under.startswith(ANY):
            under = under.replace(ANY, "any software", 1)
        return (
            f"{self.n} published runs of {self.device} under {under}: mean error "
            f"{100 * self.mean_abs_error:.1f} %, largest {100 * self.max_abs_error:.0f} %, "
            f"bias {100 * self.bias:+.1f} %"
        )


def describe(found: Evidence | None, *, mixed: bool = False) -> str:
    """One line for people, also where there is nothing to cite."""
    if found is None and mixed:
        return "no published run of nodes of different kinds: expect errors of 10 % and more"
    if found is None:
        return "no published run of this device: expect errors of 10 % and more"
    return found.sentence()


def gather_evidence(found: Validation) -> list[Evidence]:
    """Figures per (device, software) and per device, in a fixed order."""
    groups: dict[tuple[str, str], list[Comparison]] = {}
    for row in found.rows:
        if row.error is not None:
            practice = row.practice or row.software
            for software in (practice, any_of(practice)):
                groups.setdefault((row.device, software), []).append(row)
    return [_figures(device, software, rows) for (device, software), rows in sorted(groups.items())]


def _figures(device: str, software: str, rows: list[Comparison]) -> Evidence:
    summary = summarise([row.error for row in rows if row.error is not None], 0)
    return Evidence(
        device=device,
        software=software,
        n=summary.n,
        mean_abs_error=round(summary.mean_abs_error or 0.0, 4),
        max_abs_error=round(summary.max_abs_error or 0.0, 4),
        bias=round(summary.bias or 0.0, 4),
    )


def evidence_text(found: Validation) -> str:
    """What `evidence.json` holds."""
    entries = [entry.to_json() for entry in gather_evidence(found)]
    return json.dumps({"schema_version": 1, "evidence": entries}, indent=1) + "\n"


@cache
def _shipped() -> Mapping[tuple[str, str], Evidence]:
    text = (files("parsim.validation") / "evidence.json").read_text(encoding="utf-8")
    entries = [Evidence(**entry) for entry in json.loads(text)["evidence"]]
    return {(entry.device, entry.software): entry for entry in entries}


def evidence_of(job: Job) -> Evidence | None:
    """Figures of a job's device and software; of nodes that differ there are none."""
    return None if job.mixed else evidence_for(job.device.id, job.practice)


def evidence_for(device: str, software: str) -> Evidence | None:
    """Figures of this device and software, else of the device under any software, else None."""
    known = _shipped()
    return known.get((device, software)) or known.get((device, any_of(software)))


def any_of(practice: str) -> str:
    """Name of the figures over all software: those of mixtures of experts stand apart."""
    return f"{ANY}{EXPERTS}" if practice.endswith(EXPERTS) else ANY
