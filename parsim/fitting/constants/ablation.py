"""What each effect of the model is worth: errors of every source without it, constants unchanged.

A small change does not mean that an effect is small in nature: refitted constants would absorb
most of them, and a good fit of whole steps does not prove the parts.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from parsim.fitting.constants.effects import ALL, NOTHING, Effect
from parsim.fitting.constants.families import Family, families
from parsim.fitting.constants.fit import Rows
from parsim.fitting.constants.source_cases import SourceCases, load
from parsim.validation.coverage import Summary, summarise


@dataclass(frozen=True, slots=True, kw_only=True)
class Ablated:
    """One source: errors of all its predictable rows with the full model and without each effect.

    Constants are the catalog's.
    """

    family: str
    source: str
    full: Summary
    without: dict[str, Summary]


def ablate() -> list[Ablated]:
    """Every source of every family that has predictable rows."""
    return [
        _ablated(family, source) for family in families() for source in load(family) if source.cases
    ]


def _ablated(family: Family, source: SourceCases) -> Ablated:
    rows = Rows(source.cases)
    return Ablated(
        family=family.name,
        source=source.source.name,
        full=_summary(rows, NOTHING),
        without={effect.name: _summary(rows, effect) for effect in ALL},
    )


def _summary(rows: Rows, effect: Effect) -> Summary:
    return summarise([float(error) for error in np.expm1(rows.errors({}, effect))], 0)
