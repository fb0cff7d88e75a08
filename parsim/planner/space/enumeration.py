"""Enumerate a plan space into one table, counting what the rules refuse.

Duplicates are left out by construction: without a pipeline every schedule is the same loop, only
interleaving has any number of chunks, sequence parallelism needs tensor parallelism, ZeRO needs
replicas, and a number of recomputed layers is not all of them where full recomputation is a plan.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from typing import Any

import numpy as np

from parsim.arrays import Array, Index
from parsim.cost.job import Job
from parsim.cost.legal import illegal
from parsim.cost.step.chain import Cut
from parsim.cost.step.cuts import Items, update_seconds
from parsim.cost.step.messages import border_seconds
from parsim.plan import Plan, PlanSpace, PlanTable
from parsim.planner.distinct import Cases, numbered
from parsim.planner.result import EvaluatedPlan
from parsim.planner.space.families import Families
from parsim.planner.space.listing import Listing
from parsim.planner.space.options import (
    PLAIN,
    Values,
    combinations,
    other_plans,
    ruled,
    with_setting,
)
from parsim.planner.stop import Stop
from parsim.sim.cut_descent import FEW, noticed, sent
from parsim.sim.cuts import Pipeline, chooses_cut, likely_cuts, pipeline_of


def twins_with_cuts(job: Job, families: Families) -> Iterator[Families]:
    """Families with cuts that may be faster than the even one, those of one cut together."""
    table = families.plain
    several = np.flatnonzero(table.pp > 1)
    if not len(several) or not chooses_cut(job, table.plan(int(several[0]))):
        return
    layers = _alike_layers(table)
    every, seconds = Items.of(job, table.take(layers.first))
    items, item_of = numbered(every)
    pipelines, pipeline_number = _pipelines(job, table, seconds[layers.of])
    item_of = item_of[layers.of]
    both = Cases.among(item_of, pipeline_number)
    by_cut: dict[Cut, list[int]] = {}
    for number, row in enumerate(both.first.tolist()):
        for cut in likely_cuts(items[item_of[row]], pipelines[pipeline_number[row]]):
            by_cut.setdefault(cut, []).append(number)
    for cut, numbers in by_cut.items():
        some = families.take(np.isin(both.of, numbers)).sharing({"stage_layers": cut})
        plan = replace(some.table(np.zeros(1, dtype=np.int64)).plan(0), recompute_layers=0)
        if illegal(job, plan) is None:
            yield some


def _pipelines(job: Job, table: PlanTable, seconds: Array) -> tuple[list[Pipeline], Index]:
    """Pipelines that differ in their cuts, and that of each plan, whose layers take so long, (B,).

    Orders tell more micro-batches than these apart no more.
    """
    few = np.minimum(table.num_microbatches, FEW * table.pp + 1)
    updates = noticed(_updates(job, table) / seconds, table.num_microbatches)
    messages = sent(_messages(job, table) / seconds, table.pp * table.v)
    lasts, kind_of = numbered(zip(updates.tolist(), messages.tolist(), strict=True))
    shapes = Cases.among(table.pp, table.v, table.schedule, few, kind_of)
    pipelines, number = numbered(
        pipeline_of(table.plan(row), *lasts[kind_of[row]]) for row in shapes.first.tolist()
    )
    return pipelines, number[shapes.of]


def _alike_layers(table: PlanTable) -> Cases:
    """Plans whose layers take equally long, as far as cuts are told apart by it."""
    shared = table.ep * table.etp > 1
    return Cases.among(
        *(table.tp, table.cp, table.ep, table.etp),
        *(table.microbatch_size, table.sequence_parallel),
        *(table.dp_replicate * shared, table.dp_shard * shared),
    )


def _updates(job: Job, table: PlanTable) -> Array:
    """Seconds of each plan's update of all layers on one pipeline rank, (B,)."""
    alike = Cases.among(
        *(table.tp, table.cp, table.ep, table.etp),
        *(table.dp_replicate, table.dp_shard, table.zero_stage),
    )
    return update_seconds(job, table.take(alike.first))[alike.of]


def _messages(job: Job, table: PlanTable) -> Array:
    """Seconds of each plan's message between neighbours, (B,)."""
    alike = Cases.among(
        *(table.pp, table.tp, table.cp, table.microbatch_size, table.sequence_parallel),
        *(table.stride("pp"), table.world_size),
    )
    return border_seconds(job, table.take(alike.first))[alike.of]


def better_twins(ranked: Iterable[EvaluatedPlan], most: int) -> list[EvaluatedPlan]:
    """The first plans, of those that differ by their cut alone the first one."""
    better: dict[Plan, EvaluatedPlan] = {}
    for each in ranked:
        better.setdefault(without_cut(each.plan), each)
    return list(islice(better.values(), most))


def without_cut(plan: Plan) -> Plan:
    """The plan that stands for those which differ by their cut alone."""
    return replace(plan, stage_layers=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Enumeration:
    """The legal plans and how many were looked at.

    `reasons` maps the first broken rule's message to how many plans it refused. A plan of which
    the space asks for the fewest recomputed layers that fit has `FEWEST` of them. `unlisted` are
    words for the part of the space that was not listed, where the search was to stop before.
    """

    families: Families | None
    enumerated: int
    illegal: int
    reasons: dict[str, int]
    unlisted: str = ""

    @property
    def table(self) -> PlanTable | None:
        """All legal plans as columns."""
        return None if self.families is None else self.families.table()


def enumerate_plans(job: Job, space: PlanSpace, stop: Stop | None = None) -> Enumeration:
    """Every legal plan of a space, or those that are listed before a search is to stop.

    Legality depends on the shape (degrees, micro-batch, schedule, chunks); each shape is checked
    once with the same rules as a single plan, and its options (ZeRO, sequence parallelism) and what
    saves memory are those that make sense for it. The settings that plans share by themselves come
    first, and are listed however late it is, with some of the degrees at least. Most of the time is
    left for the search itself.

    Raises:
        PlanError: the space holds a value that no plan could ever have.
    """
    stop = Stop() if stop is None else stop
    listed = _Listed(job, space, stop.of_first_step())
    every = list(combinations(job, space))
    for (decisive, _), alike in _by_what_is_plain(job, every).items():
        if listed.ends():
            break
        try:
            listed.add(decisive, every[0], alike)
        except KeyboardInterrupt:
            if not listed.pieces:
                raise
            stop.interrupt()
            break
    families = Families.joined(listed.pieces) if listed.pieces else None
    legal = 0 if families is None else len(families)
    return Enumeration(
        families=families,
        enumerated=legal + listed.reasons.total(),
        illegal=listed.reasons.total(),
        reasons=dict(listed.reasons),
        unlisted=listed.missing(len(every)),
    )


@dataclass(slots=True)
class _Listed:
    """The plans that are listed so far, and what was refused; `settings` are combinations done."""

    job: Job
    space: PlanSpace
    stop: Stop
    pieces: list[Families] = field(default_factory=list)
    reasons: Counter[str] = field(default_factory=Counter)
    by_rules: dict[tuple[object, ...], Families | None] = field(default_factory=dict)
    settings: int = 0
    degrees: str = ""

    def ends(self) -> bool:
        """Whether there are plans, and no more are to be listed."""
        return bool(self.pieces) and self.stop.due

    def add(self, decisive: tuple[object, ...], first: Values, alike: Sequence[Values]) -> None:
        """Add all plans with settings that have the same plain plans, if there is time for all."""
        if decisive not in self.by_rules:
            rows = Listing.of(self.job, with_setting(self.space, alike[0]), self.stop)
            if rows.unlisted and self.pieces:
                return
            self.degrees = self.degrees or rows.unlisted
            self.reasons += rows.reasons
            self.by_rules[decisive] = rows.families()
        families = self.by_rules[decisive]
        if families is not None:
            self.pieces += _with_settings(self.job, families, first, alike)
        self.settings += len(alike)

    def missing(self, settings: int) -> str:
        """What was not listed, in words, of so many combinations of settings."""
        words = [self.degrees] if self.degrees else []
        if self.settings < settings:
            number = f"{settings - self.settings:,} of {settings:,} combinations"
            words.append(f"{number} of {', '.join(self.space.varied)} were not listed")
        return " and ".join(words)


def _by_what_is_plain(
    job: Job, every: Sequence[Values]
) -> dict[tuple[tuple[Any, ...], ...], list[Values]]:
    """Settings by what they share, which saves no memory: what decides legality, and all else."""
    alike: dict[tuple[tuple[Any, ...], ...], list[Values]] = {}
    for values in every:
        shared = tuple(value for name, value in values.items() if name not in PLAIN)
        alike.setdefault((ruled(job, values), shared), []).append(values)
    return alike


def _with_settings(
    job: Job, families: Families, first: Values, alike: Sequence[Values]
) -> Iterator[Families]:
    """Families with settings that have the same plain plans, where they are other plans."""
    common, values = families.settings[0], alike[0]
    kept = other_plans(families.plain, first, values, saved=False)
    if not kept.any():
        return
    some = families if kept.all() else families.take(kept)
    plain = {name: value for name, value in values.items() if name not in PLAIN}
    some = replace(some, plain=some.plain.sharing(plain)).with_variants(
        [replace(common, **each) for each in alike],
        [partial(other_plans, first=first, values=each, saved=True) for each in alike],
    )
    if len(some):
        yield some
        yield from twins_with_cuts(job, some)
