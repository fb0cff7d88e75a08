"""Whether predictions choose the right plan: agreement of ranks, and where they do not."""

from __future__ import annotations

from collections.abc import Iterator

from parsim.report.text.measured.steps import RANKING, ranking_cells
from parsim.report.text.tables import percent
from parsim.units import format_seconds
from parsim.validation.ranking import Choice, Missed
from parsim.validation.validate import Validation

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
