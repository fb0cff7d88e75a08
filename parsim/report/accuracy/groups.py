"""Sections of the report that cut rows by a key, and whether predictions choose the right plan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from statistics import mean, median

from parsim.cost.job import EXPERTS
from parsim.report.markdown import cell, markdown_table
from parsim.report.text.measured.steps import RANKING, error_cells, ranking_cells
from parsim.units import format_seconds, percent
from parsim.validation.fitted_rows import cells, is_fitted
from parsim.validation.ranking import Missed, PlanTimes
from parsim.validation.validate import Validation, step_errors
from parsim.validation.validated_row import ValidatedRow


def fit_lines(validation: Validation) -> Iterator[str]:
    """Each table with rows in a fit, these rows and the others apart."""
    tables = {name: validation.of(name) for name in validation.tables}
    chosen = {name: rows for name, rows in tables.items() if any(map(is_fitted, rows))}
    if not chosen:
        return
    yield "The constants have seen the rows marked `fit` in the CSV; `test` rows they have not."
    yield ""
    every = tuple(row for row in validation.rows if row.table in chosen)
    yield from markdown_table(
        "table | rows | n | mean | median | p90 | max | bias",
        _by_use({**chosen, "all of these": every}),
        words=(0, 1),
    )


def _by_use(chosen: Mapping[str, tuple[ValidatedRow, ...]]) -> Iterator[list[object]]:
    for name, rows in chosen.items():
        for use, wanted in (("fit", True), ("test", False)):
            summary = step_errors([row for row in rows if is_fitted(row) is wanted])
            yield [name, use, summary.n, *error_cells(summary)]


def setting_of(row: ValidatedRow) -> str:
    """Stack, device and precision of a row, in words."""
    kind = " with experts" if row.practice.endswith(EXPERTS) else ""
    return f"{row.stack or '-'}{kind}, {row.device or '-'}, {row.precision or 'not stated'}"


def chip_of(row: ValidatedRow) -> str:
    """The kind of GPU of a row."""
    return row.device.split("-")[0] or "not stated"


def grouped(validation: Validation, key: Callable[[ValidatedRow], str]) -> Iterator[str]:
    """All rows by a key, predicted or skipped, with the commonest reason of the skipped ones."""
    groups: dict[str, list[ValidatedRow]] = {}
    for row in validation.rows:
        groups.setdefault(key(row), []).append(row)
    yield from markdown_table(
        "group | n | skipped | mean | median | p90 | max | bias | skipped most for",
        (_group_cells(name, rows) for name, rows in sorted(groups.items())),
        words=(0, 8),
    )


def _group_cells(name: str, rows: list[ValidatedRow]) -> list[object]:
    summary = step_errors(rows)
    reasons = Counter(row.reason for row in rows if row.skipped).most_common(1)
    why = "".join(f"{count} x {cell(reason)}" for reason, count in reasons)
    return [cell(name), summary.n, summary.n_skipped, *error_cells(summary), why]


def cell_lines(validation: Validation) -> Iterator[str]:
    """Tables whose rows repeat few configurations: each cell counts once."""
    known = cells()
    for name in validation.tables:
        groups: dict[str, list[float]] = {}
        for row in validation.of(name):
            if row.error is not None and (name, row.row_id) in known:
                groups.setdefault(known[name, row.row_id], []).append(row.error)
        if groups:
            yield from _cells_of(name, groups)


def _cells_of(name: str, groups: dict[str, list[float]]) -> Iterator[str]:
    means = {cell: mean(abs(error) for error in errors) for cell, errors in groups.items()}
    sizes = sorted(means.values())
    yield (
        f"{name}: {len(sizes)} cells, mean over cells {percent(mean(sizes))}, median "
        f"{percent(median(sizes))}, largest {percent(sizes[-1])}."
    )
    yield ""
    yield from markdown_table(
        "cell | n | mean | bias",
        (
            (where, len(errors), percent(means[where]), percent(mean(errors), signed=True))
            for where, errors in sorted(groups.items())
        ),
    )


WORTH = 0.01
"""Regret above which a decision is listed."""


def choice_lines(validation: Validation) -> Iterator[str]:
    """Rank agreement within groups of plans for one model, batch and device count."""
    if not validation.rankings:
        return
    yield "Groups of at least four plans of the same model, number of devices and global batch on"
    yield "one system. Regret: how much slower the best of the first 1 or 3 plans is than the best"
    yield "of the group; ties of predictions count against them."
    yield ""
    yield from markdown_table(
        RANKING,
        (
            (name, ranking.groups, *ranking_cells(ranking))
            for name, ranking in validation.rankings.items()
        ),
    )
    yield from _missed_lines([each for each in validation.missed() if each.regret > WORTH])


def _missed_lines(missed: list[Missed]) -> Iterator[str]:
    """Every decision whose first choice is slower than the fastest by more than is worth it."""
    if not missed:
        return
    tied = sum(each.tied for each in missed)
    yield ""
    yield f"In {len(missed)} groups the first choice is more than {percent(WORTH)} slower than the"
    yield f"fastest; in {tied} of them the two are a tie by their 80 % intervals:"
    yield ""
    yield from markdown_table(
        "table | model | devices | batch | plans | first choice | fastest | regret | tied",
        map(_missed_cells, missed),
        words=(0, 1, 5, 6, 8),
    )


def _missed_cells(each: Missed) -> list[object]:
    plans = (each.plans, _plan(each.chosen), _plan(each.fastest))
    return [*_job(each), *plans, percent(each.regret), "yes" if each.tied else "no"]


def _plan(choice: PlanTimes) -> str:
    """A plan with its predicted and its measured step."""
    predicted, measured = (format_seconds(s) for s in (choice.predicted, choice.measured))
    return f"`{choice.plan}` {predicted}, measured {measured}"


def _job(each: Missed) -> tuple[str | int, ...]:
    """Table, model, devices and batch; a table of samples a second is one group of no one model."""
    table, *asked = each.decision
    if not asked:
        return (table, "-", "-", "-")
    model, _layers, _tokens, devices, batch = asked[-5:]
    return (table, model, devices, batch)
