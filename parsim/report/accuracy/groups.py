"""Sections of the report that cut rows by a key, and whether predictions choose the right plan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from statistics import mean, median

from parsim.cost.job import EXPERTS
from parsim.report.text.measured.steps import RANKING, error_cells, ranking_cells
from parsim.units import format_seconds, percent
from parsim.validation.fitted_rows import cells, is_fitted
from parsim.validation.ranking import Choice, Missed
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
    yield "| table | rows | n | mean | median | p90 | max | bias |"
    yield "|---|---|--:|--:|--:|--:|--:|--:|"
    every = tuple(row for row in validation.rows if row.table in chosen)
    for name, rows in (*chosen.items(), ("all of these", every)):
        for use, wanted in (("fit", True), ("test", False)):
            summary = step_errors([row for row in rows if is_fitted(row) is wanted])
            yield f"| {name} | {use} | {summary.n} | {' | '.join(error_cells(summary))} |"


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
    yield "| group | n | skipped | mean | median | p90 | max | bias | skipped most for |"
    yield "|---|--:|--:|--:|--:|--:|--:|--:|---|"
    for name, rows in sorted(groups.items()):
        summary = step_errors(rows)
        reasons = Counter(row.reason for row in rows if row.skipped).most_common(1)
        why = "".join(f"{count} x {cell(reason)}" for reason, count in reasons)
        cells = [cell(name), summary.n, summary.n_skipped, *error_cells(summary), why]
        yield f"| {' | '.join(str(cell) for cell in cells)} |"


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
    yield "| cell | n | mean | bias |"
    yield "|---|--:|--:|--:|"
    for cell, errors in sorted(groups.items()):
        bias = percent(mean(errors), signed=True)
        yield f"| {cell} | {len(errors)} | {percent(means[cell])} | {bias} |"


def cell(text: str) -> str:
    """Text of a user's table as one cell: no bar ends it, no line end breaks it."""
    return " ".join(text.split()).replace("|", "\\|")


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
    yield f"| {' | '.join(RANKING)} |"
    yield f"|---|{'--:|' * (len(RANKING) - 1)}"
    for name, ranking in validation.rankings.items():
        yield f"| {name} | {ranking.groups} | {' | '.join(ranking_cells(ranking))} |"
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
    yield "| table | model | devices | batch | plans | first choice | fastest | regret | tied |"
    yield "|---|---|--:|--:|--:|---|---|--:|---|"
    for each in missed:
        words = (*_job(each), each.plans, _plan(each.chosen), _plan(each.fastest))
        told = "yes" if each.tied else "no"
        yield f"| {' | '.join(map(str, words))} | {percent(each.regret)} | {told} |"


def _plan(choice: Choice) -> str:
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
