"""The dispatching rule with the shortest order: a population whose best change a little, often.

    1  begin with plain rules: forwards first or backwards first, few or many forwards ahead
    2  children of the best: one number changed on a stage, on all above it or on all below; or
       the upper stages of one parent with the lower ones of another
    3  again from 1 with other draws where nothing becomes better for long

Equal input gives equal output: draws are counted, not timed. Source: evolution of dispatching
rules, Branke, Nguyen, Pickardt and Zhang 2016 (IEEE TEVC 20(1)).
"""

from __future__ import annotations

import time
from dataclasses import fields

import numpy as np

from parsim.arrays import Array, Flags, Index
from parsim.schedule.orders.dispatch import Rules, Shop

BEST = 24
"""Rules that have children."""

CHILDREN = 192
"""New rules of a generation: as many as arrays of some 1,000 numbers take together."""

MOST_RULES = 6000
"""Rules that are tried at most, however short their orders are."""

PATIENT = 6
"""Generations without anything shorter after which the search begins again."""

GAPS = np.array([0.0, 0.25, 0.5, 0.75, 1.0, 1.5, 3.0])
PATIENCE = np.array([0.0, 0.0, 0.0, 0.1, 0.25, 0.5, 1.0])

NOTHING = np.zeros(0)

_ROUNDING = 1e-9


def best_rule(
    shop: Shop, bound: float, actions: int, until: float | None = None
) -> tuple[Rules, float]:
    """The best of the rules that are tried, as the only column, and when its order ends.

    Args:
        shop: the pipeline.
        bound: an end at which to stop.
        actions: how many actions may be run in all.
        until: what `time.perf_counter` says at the end instead, however many are run by then.
    """
    draws = np.random.default_rng(0)
    target, left = bound * (1.0 + _ROUNDING), min(actions // shop.actions, MOST_RULES)
    best, shortest = _plain(shop), np.inf

    def goes_on() -> bool:
        return left >= CHILDREN if until is None else time.perf_counter() < until

    while shortest > target and (goes_on() or shortest == np.inf):
        rules, ends = _ranked(_plain(shop), shop)
        waited = 0
        while goes_on() and ends[0] > target and waited < PATIENT:
            before = ends[0]
            rules, ends = _ranked(_joined(rules, _children(shop, rules, draws)), shop, ends)
            left -= CHILDREN
            waited = 0 if ends[0] < before * (1.0 - _ROUNDING) else waited + 1
        if ends[0] < shortest:
            best, shortest = rules, float(ends[0])
    return best.take(np.array([0])), shortest


def _plain(shop: Shop) -> Rules:
    """Rules alike on all stages, with as many forwards ahead as common schedules have."""
    begun, limits = shop.begun, shop.stage_limits
    counts = (
        limits,
        begun,
        2 * begun - 1,
        (3 * begun + 1) // 2,
        limits - np.arange(shop.stages),
    )
    each = [
        (np.clip(count, 1, limits), eager, gap)
        for count in counts
        for eager in (True, False)
        for gap in ((0.0, 0.5, 1.0, 3.0) if shop.split else (1.0,))
    ]
    ahead, eager, gap = zip(*each, strict=True)
    shape = (shop.stages, len(each))
    return Rules(
        ahead=np.stack(ahead, axis=1),
        eager=np.broadcast_to(np.array(eager), shape).copy(),
        patience=np.zeros(shape),
        gap=np.broadcast_to(np.array(gap), shape).copy(),
    )


def _joined(*some: Rules) -> Rules:
    """The columns of several, one behind the other."""
    names = [field.name for field in fields(Rules)]
    return Rules(**{n: np.concatenate([getattr(r, n) for r in some], axis=1) for n in names})


def _ranked(rules: Rules, shop: Shop, known: Array = NOTHING) -> tuple[Rules, Array]:
    """The `BEST` rules that differ, the one that ends first in front; the first may be known."""
    fresh = shop.ends(rules.take(slice(len(known), None)))
    ends = np.concatenate([known, fresh])
    seen: dict[tuple[bytes, ...], int] = {}
    for column in np.argsort(ends, kind="stable").tolist():
        numbers = (rules.ahead, rules.eager, rules.patience, rules.gap)
        seen.setdefault(tuple(each[:, column].tobytes() for each in numbers), column)
        if len(seen) == BEST:
            break
    columns = np.array(list(seen.values()))
    return rules.take(columns), ends[columns]


def _children(shop: Shop, parents: Rules, draws: np.random.Generator) -> Rules:
    """Children of good parents rather than of bad ones: crossed now and then, and changed."""
    count = len(parents)
    parent = np.minimum(draws.integers(0, count, CHILDREN), draws.integers(0, count, CHILDREN))
    other, cut = draws.integers(0, count, CHILDREN), draws.integers(0, shop.stages + 1, CHILDREN)
    crossed = (np.arange(shop.stages)[:, None] >= cut) & (draws.random(CHILDREN) < 0.3)
    children = _where(crossed, parents.take(other), parents.take(parent))
    for share in (1.0, 0.4):
        ranks = _stages(shop.stages, draws) & (draws.random(CHILDREN) < share)
        children = _where(ranks, _changed(shop, children, draws), children)
    return children


def _where(chosen: Flags, ours: Rules, others: Rules) -> Rules:
    """The numbers of the one where they are chosen, (p, K), of the others elsewhere."""
    names = [field.name for field in fields(Rules)]
    return Rules(**{n: np.where(chosen, getattr(ours, n), getattr(others, n)) for n in names})


def _stages(p: int, draws: np.random.Generator) -> Flags:
    """For each child one stage, or those down to it, or those from it on, (p, K)."""
    stage, at = np.arange(p)[:, None], draws.integers(0, p, CHILDREN)
    scope: Index = draws.integers(0, 3, CHILDREN)
    return np.asarray(
        np.where(scope == 0, stage == at, np.where(scope == 1, stage <= at, stage >= at))
    )


def _changed(shop: Shop, rules: Rules, draws: np.random.Generator) -> Rules:
    """One of the four numbers changed on all stages."""
    what = draws.integers(0, 4 if shop.split else 3, CHILDREN)
    step = draws.choice([-2, -1, 1, 2], CHILDREN, p=[0.15, 0.35, 0.35, 0.15])
    ahead = np.clip(rules.ahead + step, 1, shop.stage_limits[:, None])
    patience = np.broadcast_to(draws.choice(PATIENCE, CHILDREN), rules.patience.shape)
    gap = np.broadcast_to(draws.choice(GAPS, CHILDREN), rules.gap.shape)
    return Rules(
        ahead=np.where(what == 0, ahead, rules.ahead),
        eager=np.where(what == 1, ~rules.eager, rules.eager),
        patience=np.where(what == 2, patience, rules.patience),
        gap=np.where(what == 3, gap, rules.gap),
    )
