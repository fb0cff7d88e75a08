"""The page on published trainings: whole runs that people paid for, predicted as they were set up.

    python -m parsim.report.accuracy.trainings PAGE

A blind table: no constant and no interval has seen a row. What is measured is a step as printed, or
the whole training's device hours over its steps, which hold restarts and idle time too.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from parsim.report.markdown import markdown_table
from parsim.units import HOUR, percent
from parsim.validation.tables import blind_tables
from parsim.validation.validate import Validation, step_errors, validate
from parsim.validation.validated_row import ValidatedRow

TABLE = "published_trainings"

HEAD = f"""# Published trainings

Written by `make reports`; do not edit. Trainings that ran for days or months, predicted from what
their papers and scripts say of them; the rows, with every source, are
[{TABLE}.csv](../parsim/validation/data/blind/{TABLE}.csv). The table is blind: no constant and no
interval has seen a row. The errors of the code that first predicted it stand beside today's in
[docs/accuracy.md](../docs/accuracy.md); what changed a prediction since is in the changelog.

What is measured differs. Where the last column says "measured" it is a step's time as printed, or
one line of a log. Where it is hours over steps, the hours are of the whole training, with
evaluations, checkpoints, restarts and waits unless the row's note says otherwise: a prediction of
steps alone should come out below it by what was lost, which is up to 10 % where runs report it
(90 % effective time and more: arXiv:2407.21783, section 3.3.4; arXiv:2402.15627, section 6.3). No
error is corrected for that. The hours predicted are those of the same number of steps, nothing
lost. Micro-batches of MT-NLG, of MegaScale's baseline and of BloombergGPT are assumed, as their
notes say.
"""

COLUMNS = (
    "training", "devices", "step, predicted", "80 % interval", "measured", "error", "inside",
    "device hours, predicted", "published", "measured is",
)  # fmt: skip


def page(validation: Validation) -> Iterator[str]:
    """The page's lines: every row, signed, then those that no prediction can be made of."""
    rows = validation.of(TABLE)
    done = [row for row in rows if row.error is not None]
    yield HEAD
    yield from markdown_table(COLUMNS, map(_cells, done), words=(0, len(COLUMNS) - 1))
    yield ""
    yield from _summaries(done)
    yield ""
    yield "## Not predicted"
    yield ""
    yield "What these sources print is not enough, or parsim has no such plan:"
    yield ""
    for row in rows:
        if row.skipped:
            yield f"- {row.row_id}: {row.reason}"


def _cells(row: ValidatedRow) -> list[str]:
    run = row.run
    low, high = row.step_interval or (0.0, 0.0)
    seconds = row.predicted_step or 0.0, row.measured_step or 0.0
    steps = run.training_steps if run else None
    devices = run.n_gpus if run else 0
    hours = seconds[0] * steps * devices / HOUR if steps else None
    published = run.device_hours if run else None
    return [
        row.row_id,
        f"{devices:,}",
        f"{seconds[0]:.4g} s",
        f"{low:.4g} to {high:.4g} s",
        f"{seconds[1]:.4g} s",
        percent(row.error, signed=True),
        "yes" if low <= seconds[1] <= high else "no",
        *("-" if each is None else f"{each:,.0f}" for each in (hours, published)),
        run.step_time_from if run else "",
    ]


def _summaries(rows: Sequence[ValidatedRow]) -> Iterator[str]:
    """One sentence of all rows, and one of each kind of measurement."""
    yield _sentence("All", rows)
    printed = [row for row in rows if row.run and row.run.step_time_from == "measured"]
    yield _sentence("Steps as printed", printed)
    yield _sentence("Whole trainings and rates", [row for row in rows if row not in printed])


def _sentence(what: str, rows: Sequence[ValidatedRow]) -> str:
    summary = step_errors(rows)
    inside = Validation(rows=tuple(rows)).coverage()
    return (
        f"{what}: {summary.n} runs, median error {percent(summary.median_abs_error)}, mean "
        f"{percent(summary.mean_abs_error)}, bias {percent(summary.bias, signed=True)}; "
        f"{percent(inside.covered)} inside the 80 % interval."
    )


def main(path: Path) -> None:
    """Predict the table and write the page."""
    tables = [table for table in blind_tables() if table.stem == TABLE]
    path.write_text("\n".join(page(validate(tables))) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
