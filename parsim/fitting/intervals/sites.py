"""How far one site's runs are from another's, under software that only many sites measured.

A stack that one crew tuned on one machine has errors of its own. Of others, such as DeepSpeed, a
table of many publishers says how far apart sites are. Each publisher's runs of one software and
device count once: with e their mean |log error| and h the mean half of their intervals otherwise,

    site = the 80 % quantile, corrected for few, of  sqrt( max(e^2 - h^2, 0) )

Only rows that were set aside for fits enter (column `split`); the others judge it.

Source: as the factors of levels (`novelty.py`), with publishers as groups that are exchangeable.
Leaves out: that sites share causes, such as one release; stacks that some other table has measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import sqrt

import numpy as np

from parsim.fitting.intervals.residuals import Residual, quantile
from parsim.sim.confidence.interval import standing_half
from parsim.sim.confidence.known_errors import Errors, stacks_of


def with_sites(errors: Errors, runs: Sequence[Residual], apart: Sequence[Residual]) -> Errors:
    """The figures with what a site adds under software that is in no other run than `apart`."""
    measured = {run.software for run in runs}
    alone = [run for run in apart if run.software not in measured]
    if not alone:
        return errors
    cells: dict[tuple[str, str, str], list[Residual]] = {}
    for run in alone:
        cells.setdefault((run.standing.publisher, run.software, run.device), []).append(run)
    described = replace(errors, stacks=errors.stacks | stacks_of(run.software for run in alone))
    asked = np.array([_asked(described, cell) for cell in cells.values()])
    return replace(
        described,
        site=quantile(asked, np.ones(len(asked))),
        sites=frozenset(run.software for run in alone),
    )


def _asked(errors: Errors, cell: Sequence[Residual]) -> float:
    """What a cell's runs would have to have beside their halves to lie inside on average."""
    half = np.mean([standing_half(run.standing, errors, slower=run.error > 0.0) for run in cell])
    error = np.mean([abs(run.error) for run in cell])
    return sqrt(max(float(error) ** 2 - float(half) ** 2, 0.0))
