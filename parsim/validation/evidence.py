"""How far predictions for a device and software have been from published runs.

The figures are computed by `make reports` from every shipped row and kept in `evidence.json`, so
that each prediction can say what it rests on without predicting a thousand runs first. They are
not an interval for the plan at hand: its shape may be unlike those of the table.

Runs of blind tables stand apart, by software alone (`data/blind/evidence.json`): no fit and no
interval has seen them, so they say what somebody's own runs may meet.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from parsim.cost.job import EXPERTS, NETWORKS, Job, kind_of
from parsim.sim.confidence.known_errors import ANY, any_software, errors_of
from parsim.units import counted

UNSEEN = files("parsim.validation") / "data" / "blind" / "evidence.json"
"""Figures of runs in blind tables; `make reports` writes it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Step-time errors of published runs of one device and software (fractions).

    Of |predicted / measured - 1| of `n` runs there are mean and maximum; `bias` keeps the sign.
    """

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
            f"{counted(self.n, 'published run')} of {self.device} under {under}: mean error "
            f"{100 * self.mean_abs_error:.1f} %, largest {100 * self.max_abs_error:.0f} %, "
            f"bias {100 * self.bias:+.1f} %"
        )


def cited(job: Job) -> str:
    """What a prediction of this job rests on, and how far off runs were that nothing was fitted to.

    One line for people.
    """
    unseen, evidence = unseen_of(job), evidence_of(job)
    words = none_of(job) if evidence is None else evidence.sentence() + _apart(job, evidence)
    if unseen is None:
        return words
    errors = f"mean error {100 * unseen.mean_abs_error:.1f} %, bias {100 * unseen.bias:+.1f} %"
    if unseen.n == 1:
        errors = f"error {100 * unseen.bias:+.1f} %"
    runs = f"{counted(unseen.n, 'blind run')} under {unseen.software}, any device, in no fit"
    return f"{words}; {runs}: {errors}"


def _apart(job: Job, evidence: Evidence) -> str:
    """What to say of cited runs that intervals are not made of, where they are most of them."""
    if outside_intervals(job):
        return "; their publishers differ too much for the 80 % interval, which leaves them out"
    group = errors_of(job.practice).groups.get((evidence.device, evidence.software, ANY))
    apart = evidence.n - (group.n if group is not None else 0)
    if 2 * apart <= evidence.n:
        return ""
    return f"; the 80 % interval leaves {apart} of them out, which judge it alone"


def outside_intervals(job: Job) -> bool:
    """Whether no run of the job's device is among those that intervals are made of.

    The table of many publishers (DeepSpeed's users) is cited as evidence and judged apart.
    """
    key = (job.device.id, any_software(job.practice), ANY)
    return not job.device.calibrated and key not in errors_of(job.practice).groups


def none_of(job: Job) -> str:
    """One line for people where there is nothing to cite."""
    which = "of nodes of different kinds" if job.mixed else _none_on(job.device.id, job.practice)
    return f"no published run {which}: expect errors of 10 % and more"


def _none_on(device: str, practice: str) -> str:
    """What runs there are none of: any of a device, or those of one kind of model."""
    kinds = {EXPERTS: "a mixture of experts", NETWORKS: "such a network", "": "a transformer"}
    other = any(entry.device == device for entry in _shipped().values())
    return f"of {kinds[kind_of(practice)]} on this device" if other else "of this device"


@cache
def _shipped() -> Mapping[tuple[str, str], Evidence]:
    texts = (
        (files("parsim.validation") / name).read_text(encoding="utf-8")
        for name in ("evidence.json", "evidence_networks.json")
    )
    entries = [Evidence(**entry) for text in texts for entry in json.loads(text)["evidence"]]
    return {(entry.device, entry.software): entry for entry in entries}


def evidence_of(job: Job) -> Evidence | None:
    """Figures of a job's device and software; of nodes that differ there are none."""
    return None if job.mixed else evidence_for(job.device.id, job.practice)


def unseen_of(job: Job) -> Evidence | None:
    """Figures of blind runs under a job's software, None where there are none."""
    return _unseen().get(unseen_key(job.practice, adapters=job.model.trained is not None))


def unseen_key(practice: str, *, adapters: bool) -> str:
    """What blind runs are counted under: those that train adapters alone by themselves."""
    return f"{practice}, adapters" if adapters else practice


@cache
def _unseen() -> Mapping[str, Evidence]:
    entries = json.loads(UNSEEN.read_text(encoding="utf-8"))["evidence"]
    return {entry["software"]: Evidence(**entry) for entry in entries}


def evidence_for(device: str, software: str) -> Evidence | None:
    """Figures of this device and software, else of the device under any software, else None."""
    known = _shipped()
    return known.get((device, software)) or known.get((device, any_software(software)))
