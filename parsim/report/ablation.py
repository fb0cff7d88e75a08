"""`reports/ablation.md`: what each effect is worth, and sources left out of the fit (minutes).

python -m parsim.report.ablation reports/ablation.md
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from parsim.report.fit import told_summary
from parsim.report.save import check_writable, write_text
from parsim.report.text import percent
from parsim.sim.known_errors import shipped_errors
from parsim.validation.ablation import Ablated, ablate
from parsim.validation.compare import shipped_tables, validate
from parsim.validation.effects import ALL
from parsim.validation.fitting.constants import Address
from parsim.validation.fitting.families import Family, families
from parsim.validation.fitting.fit import fit
from parsim.validation.fitting.rows import load
from parsim.validation.interval_leave_out import refitted
from parsim.validation.intervals import residuals_of
from parsim.validation.leave_out import LeftOut, leave_out

HEAD = """# Ablation, and sources left out

Written by `make ablation`; do not edit.

## Effects switched off

Mean |error| of all rows of a source, percent: with the full model and without one effect, the
catalog's constants unchanged; below it the bias. A small change does not mean that an effect is
small: others may hide it, and refitted constants would absorb most of what is missing. A lower
error without an effect means that the constants make up for something else with it."""

LEFT_OUT = """## One source left out of the fit

Each family is fitted again from its textbook values to its other sources (the rows that the fit
may use, see [fit.md](fit.md)), and predicts all rows of the one left out. Constants that only this
source identifies (its software's) then stay near their textbook values. Percent: mean |error| /
median / largest / bias. `inside` and `half width` are of 80 % intervals whose figures have not seen
the source either."""


def ablation_lines(found: list[Ablated]) -> Iterator[str]:
    """Sources down, effects across; then what each switch means."""
    names = [effect.name for effect in ALL]
    yield f"| source | n | full model | {' | '.join(names)} |"
    yield f"|---|--:|--:|{'--:|' * len(names)}"
    for one in found:
        rows = (one.full, *(one.without[name] for name in names))
        errors = [percent(row.mean_abs_error).removesuffix(" %") for row in rows]
        biases = [percent(row.bias, signed=True).removesuffix(" %") for row in rows]
        yield f"| {one.source} | {one.full.n} | {' | '.join(errors)} |"
        yield f"| ... bias | | {' | '.join(biases)} |"
    yield ""
    yield "What each switch means:"
    yield ""
    yield from (f"- {effect.name}: {effect.meaning}." for effect in ALL)


def leave_out_lines(found: list[LeftOut], alone: list[str]) -> Iterator[str]:
    """One line a source; families with one source alone are named."""
    yield (
        "| family | source | n | textbook, nothing fitted | all sources fitted | left out "
        "| inside | half width |"
    )
    yield "|---|---|--:|--:|--:|--:|--:|--:|"
    for one in found:
        told = " | ".join(told_summary(s) for s in (one.textbook, one.fitted, one.left_out))
        held = (one.intervals.covered, one.intervals.half_width) if one.intervals else (None, None)
        inside = " | ".join(percent(x) for x in held)
        yield f"| {one.family} | {one.source} | {one.fitted.n} | {told} | {inside} |"
    if alone:
        yield ""
        yield f"Only one source has rows in the fit, so none can be left out: {', '.join(alone)}."


def _all_left_out(chosen: tuple[Family, ...]) -> tuple[list[LeftOut], list[str]]:
    judge = refitted(residuals_of(validate(shipped_tables())), shipped_errors())
    known: dict[Address, float] = {}
    found: list[LeftOut] = []
    alone = []
    for family in chosen:
        sources = load(family)
        whole = fit(family, sources, known)
        lines = leave_out(family, sources, whole, known, lambda said: _tell(said), judge)
        found += lines
        alone += [] if lines else [family.name]
        known |= whole.values
    return found, alone


def _tell(said: str) -> None:
    sys.stderr.write(said + "\n")


def main(report: Path) -> None:
    """Ablate, leave out, write."""
    check_writable(report)
    parts = [HEAD, "\n".join(ablation_lines(ablate())), LEFT_OUT]
    parts.append("\n".join(leave_out_lines(*_all_left_out(families()))))
    write_text(report, "\n\n".join(parts) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
