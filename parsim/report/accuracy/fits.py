"""Runs that did run although the prediction says they have no room: errors of the memory model.

A run that was published ran. Where its predicted peak passes what the device has, either a term is
too high or the run did what its table does not print: moved activations to the host, say.

Source: the fit's three words, `parsim/sim/confidence/memory_fit.py`.
A row that says its run ended out of memory is the other half: it should not fit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby

from parsim.report.markdown import markdown_table
from parsim.sim.confidence.memory_fit import Fit, fit_of, margin_of
from parsim.units import format_bytes
from parsim.validation.validate import Validation
from parsim.validation.validated_row import ValidatedRow


def unfit_lines(validation: Validation) -> Iterator[str]:
    """A Markdown table of the runs that are predicted not to fit; runs of one plan share a line."""
    predicted = [row for row in validation.rows if row.case is not None and row.predicted_peak]
    judged = [row for row in predicted if not row.ran_out]
    words = [_fit(row) for row in judged]
    if not judged:
        return
    unfit = [row for row, word in zip(judged, words, strict=True) if word is Fit.TOO_LARGE]
    yield (
        f"Of {len(judged):,} runs that ran, {words.count(Fit.FITS):,} are predicted to fit, "
        f"{words.count(Fit.TIGHT)} to be tight, {len(unfit)} not to fit:"
    )
    yield ""
    yield from markdown_table(
        "table | runs | model | device | stack | plan | predicted peak | device's memory",
        _unfit_cells(unfit),
        words=(0, 2, 3, 4, 5),
    )


def _unfit_cells(unfit: Iterable[ValidatedRow]) -> Iterator[list[object]]:
    for cells, rows in groupby(sorted(unfit, key=_cells), key=_cells):
        same = list(rows)
        highest = max(same, key=lambda row: row.predicted_peak or 0.0)
        yield [cells[0], len(same), *cells[1:], *_sizes(highest)]


def ran_out_line(validation: Validation) -> str:
    """What is predicted of the runs that ended out of memory; empty where there are none."""
    words = [_fit(row) for row in validation.rows if row.ran_out]
    if not words:
        return ""
    count = {word: words.count(word) for word in Fit}
    return (
        f"Of {len(words)} runs that ended out of memory, {count[Fit.TOO_LARGE]} are predicted not "
        f"to fit, {count[Fit.TIGHT]} to be tight, {count[Fit.FITS]} to fit."
    )


def _fit(row: ValidatedRow) -> Fit | None:
    """The word for one run's highest rank."""
    if row.case is None or row.predicted_peak is None:
        return None
    job, plan = row.case.job, row.case.plan
    share = margin_of(job, plan).share
    return fit_of(job.software, row.predicted_peak, job.usable_memory, share)


def _cells(row: ValidatedRow) -> tuple[str, ...]:
    """What one line is of; how many replicas run a plan does not matter to it."""
    plan = " ".join(word for word in row.plan.split() if not word.startswith(("dp", "shard")))
    return row.table, row.model, row.device, row.stack, plan


def _sizes(row: ValidatedRow) -> tuple[str, str]:
    if row.case is None or row.predicted_peak is None:
        return "-", "-"
    return format_bytes(row.predicted_peak), format_bytes(row.case.job.device.memory)
