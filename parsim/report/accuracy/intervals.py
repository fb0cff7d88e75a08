"""Sections of the report that judge intervals, and how predictions hold where a question is new."""

from __future__ import annotations

from collections.abc import Iterator

from parsim.report.markdown import markdown_table
from parsim.units import percent
from parsim.validation.coverage import Coverage, LeftOut, LevelCoverage
from parsim.validation.validate import Validation

_SEEN = (
    "these very rows; `left out` judges each table's rows by constants and figures that have not",
    "seen the table.",
)
"""Whose errors the intervals rest on; somebody's own rows are not among them."""


def unseen_lines(left_out: LeftOut) -> Iterator[str]:
    """How predictions hold where a question is new."""
    yield "A question is new where no run has its model, its device, its release, its kind of"
    yield "plan or its scale. Of each level, every group of runs (one model's, one device's, ...)"
    yield "is left out once: constants and interval figures are those without it. `source` leaves a"
    yield "whole table out, with all that only it knows. `inside` is by factors of the level that"
    yield "have not seen the run's table either; `all tables` by the shipped ones, which have."
    yield "`median, cells` counts a table's runs of one model, tensor-parallel degree and"
    yield "micro-batch once, by their mean error: most runs are one table's repeats of few cells."
    yield "Formulas were chosen by people who saw these rows, which leaving out does not undo: a"
    yield "table that nobody has looked at stays blind (docs/accuracy.md)."
    yield ""
    yield from level_table(left_out)


def level_table(left_out: LeftOut) -> Iterator[str]:
    """One line for each way in which a question can be new."""
    yield from markdown_table(
        "new is the | left out | runs | inside the 80 % interval | all tables | half width "
        "| median error | half width / error | mean error | bias | cells | median, cells",
        map(_level_cells, left_out.levels),
    )


def _level_cells(level: LevelCoverage) -> list[object]:
    inside, ratio = level.coverage, level.coverage.ratio
    return [
        f"{level.level} ({level.about})",
        level.groups,
        inside.n,
        *(percent(x) for x in (inside.covered, level.seen, inside.half_width, inside.error)),
        "-" if ratio is None else f"{ratio:.1f}",
        percent(level.mean),
        percent(level.bias, signed=True),
        level.cells,
        percent(level.cell_error),
    ]


def interval_lines(validation: Validation, left_out: LeftOut | None) -> Iterator[str]:
    """Coverage and width of the intervals, per table and over all rows."""
    yield "Half width: half of the interval over the prediction, median. A normal error and 80 %"
    yield "would give a half width of 1.9 median errors. The figures behind the intervals come from"
    yield from _SEEN if left_out else ("the shipped tables, not from these rows.",)
    yield ""
    yield from interval_table(validation, left_out)


def interval_table(validation: Validation, left_out: LeftOut | None) -> Iterator[str]:
    """One line for each table that has an interval and a measurement, and one for all."""
    yield from markdown_table(
        "table | of | n | inside | half width | median error | half width / error "
        "| left out: inside | half width",
        _interval_cells(validation, left_out),
        words=(0, 1),
    )


def _interval_cells(validation: Validation, left_out: LeftOut | None) -> Iterator[list[object]]:
    for what, of in (
        ("step time", validation.coverage),
        ("peak memory", validation.memory_coverage),
    ):
        apart = left_out.tables if left_out and what == "step time" else {}
        for name in (*validation.tables, None):
            coverage = of(name)
            if coverage.n:
                yield [name or "all", what, *_covered(coverage, apart.get(name))]


def _covered(coverage: Coverage, left_out: Coverage | None) -> list[str]:
    """Cells of a line: by all figures, and by those without the table's own rows."""
    ratio = "-" if coverage.ratio is None else f"{coverage.ratio:.1f}"
    shares = (coverage.covered, coverage.half_width, coverage.error)
    cells = [str(coverage.n), *(percent(share) for share in shares), ratio]
    other = (left_out.covered, left_out.half_width) if left_out else (None, None)
    return [*cells, *(percent(x) for x in other)]
