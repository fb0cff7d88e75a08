"""Do predictions choose the right plan? Rank agreement and regret within groups of plans.

A group is one decision: runs of the same model, sequence length, batch and number of devices, on
one system under one stack and precision, that differ in the plan. Groups of fewer than four plans
say nothing.

    predicted order     d  a  c  b           regret@1 = measured(d) / best - 1
    measured seconds    4  3  5  6           regret@3 = min(4, 3, 5) / 3 - 1 = 0
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from statistics import mean, median
from typing import Any, NamedTuple

SMALLEST = 4
"""Plans that a group needs."""

Pair = tuple[float, float]
"""Predicted and measured seconds of a plan."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranking:
    """Rank agreement over the `groups` of a table; None where there is no group (or no order).

    `spearman_*` is the rank correlation of predicted and measured steps of a group, -1 to 1.
    `regret_at_1_*` is by which share the plan that is predicted fastest is slower than the fastest,
    `regret_at_3_*` the best of the three that are predicted fastest.
    """

    groups: int
    spearman_median: float | None
    spearman_mean: float | None
    spearman_min: float | None
    regret_at_1_median: float | None
    regret_at_1_mean: float | None
    regret_at_1_max: float | None
    regret_at_3_median: float | None
    regret_at_3_mean: float | None
    regret_at_3_max: float | None

    def to_json(self) -> dict[str, Any]:
        """Field names are the JSON contract."""
        return {name: getattr(self, name) for name in self.__slots__}


class PlanTimes(NamedTuple):
    """A plan of a decision: its label, predicted and measured seconds, its 80 % interval."""

    plan: str
    predicted: float
    measured: float
    interval: tuple[float, float] | None = None


class Missed(NamedTuple):
    """A decision in which another plan was measured faster than the one predicted fastest."""

    decision: tuple[str | int, ...]
    plans: int
    chosen: PlanTimes
    fastest: PlanTimes

    @property
    def regret(self) -> float:
        """How much slower the chosen plan is than the fastest."""
        return self.chosen.measured / self.fastest.measured - 1.0

    @property
    def tied(self) -> bool:
        """Whether predictions call the two a tie: each lies in the other's interval."""
        first, best = self.chosen, self.fastest
        if first.interval is None or best.interval is None:
            return False
        return best.interval[0] <= first.predicted and best.predicted <= first.interval[1]


def missed(rows: Iterable[tuple[tuple[str | int, ...], PlanTimes]]) -> list[Missed]:
    """The decisions that take a slower plan first, the worst of them first."""
    groups: dict[tuple[str | int, ...], list[PlanTimes]] = {}
    for key, choice in rows:
        groups.setdefault(key, []).append(choice)
    judged = [
        Missed(
            decision=key,
            plans=len(plans),
            chosen=min(plans, key=lambda plan: (plan.predicted, -plan.measured)),
            fastest=min(plans, key=lambda plan: plan.measured),
        )
        for key, plans in groups.items()
        if len(plans) >= SMALLEST
    ]
    wrong = [each for each in judged if each.regret > 0.0]
    return sorted(wrong, key=lambda each: each.regret, reverse=True)


def rank(rows: Iterable[tuple[Hashable, float, float]]) -> Ranking:
    """Judge (group, predicted, measured) rows."""
    groups: dict[Hashable, list[Pair]] = {}
    for key, predicted, measured in rows:
        groups.setdefault(key, []).append((predicted, measured))
    kept = [pairs for pairs in groups.values() if len(pairs) >= SMALLEST]
    agreement = [agreed for pairs in kept if (agreed := spearman(pairs)) is not None]
    first, third = [regret(pairs, 1) for pairs in kept], [regret(pairs, 3) for pairs in kept]
    return Ranking(
        groups=len(kept),
        spearman_median=median(agreement) if agreement else None,
        spearman_mean=mean(agreement) if agreement else None,
        spearman_min=min(agreement, default=None),
        regret_at_1_median=median(first) if kept else None,
        regret_at_1_mean=mean(first) if kept else None,
        regret_at_1_max=max(first, default=None),
        regret_at_3_median=median(third) if kept else None,
        regret_at_3_mean=mean(third) if kept else None,
        regret_at_3_max=max(third, default=None),
    )


def spearman(pairs: Sequence[Pair]) -> float | None:
    """Correlation of the ranks, ties sharing their mean rank.

    None where all measured times are equal (every order is right); 0 where all predicted ones are.
    """
    predicted = _ranks([seconds for seconds, _ in pairs])
    measured = _ranks([seconds for _, seconds in pairs])
    middle = (len(pairs) + 1) / 2.0
    across = sum((x - middle) * (y - middle) for x, y in zip(predicted, measured, strict=True))
    predicted_spread = sum((x - middle) ** 2 for x in predicted)
    measured_spread = sum((y - middle) ** 2 for y in measured)
    if measured_spread == 0.0:
        return None
    if predicted_spread == 0.0:
        return 0.0
    return float(across / (predicted_spread * measured_spread) ** 0.5)


def _ranks(values: Sequence[float]) -> list[float]:
    """1 for the smallest; equal values share the mean of their places."""
    order = sorted(values)
    first = {value: order.index(value) for value in set(values)}
    return [first[value] + (order.count(value) + 1) / 2.0 for value in values]


def regret(pairs: Sequence[Pair], k: int) -> float:
    """How much slower the best of the k plans predicted fastest is than the best of all.

    Plans predicted equally fast are taken slowest first: a tie is no merit.
    """
    chosen = sorted(pairs, key=lambda pair: (pair[0], -pair[1]))[:k]
    return min(seconds for _, seconds in chosen) / min(seconds for _, seconds in pairs) - 1.0
