"""The legal plans of a space whose settings are fixed, and what the rules refuse of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import NamedTuple

import numpy as np

from parsim.arrays import Index, Ints
from parsim.cost.job import Job
from parsim.cost.legal import unheld_heads, unrun
from parsim.cost.step.offload import no_host
from parsim.model.model import Model
from parsim.plan import Plan, PlanSpace, PlanTable, Recompute
from parsim.plan.rules.violation import violation
from parsim.planner.space.families import Families, Savings
from parsim.planner.space.options import PLAIN, Options, StageLayers, savings_of, with_option
from parsim.planner.space.pipelines import DEGREE_RULES, Pipeline, Pipelines
from parsim.planner.space.shapes import Degrees, all_degrees
from parsim.planner.stop import Stop


class _Shape(NamedTuple):
    """Plans of equal degrees and pipeline: N options, (N, 3), and the savings of each, (N,).

    `degrees` is the number of its degrees among all.
    """

    plan: Plan
    schedule: str
    v: int
    options: Ints
    saving: Index
    degrees: int

    @property
    def row(self) -> tuple[int, ...]:
        """What `Listing.families` needs of it as numbers."""
        plan = self.plan
        sizes = (plan.microbatch_size, plan.num_microbatches, self.v)
        return (plan.tp, plan.pp, plan.cp, plan.dp, plan.ep, *sizes)


@dataclass(slots=True)
class Listing:
    """Legal shapes so far, each with its options, and what was refused."""

    job: Job
    space: PlanSpace
    choices: Options
    pipelines: Pipelines
    shapes: list[_Shape] = field(default_factory=list)
    savings: dict[tuple[object, ...], Savings] = field(default_factory=dict)
    reasons: Counter[str] = field(default_factory=Counter)
    unlisted: str = ""

    @classmethod
    def of(cls, job: Job, space: PlanSpace, stop: Stop) -> Listing:
        """All shapes of a space whose plans share all settings.

        Where time is short, degrees from everywhere come first.
        """
        hosts = space.offload_layers is not None and not any(map(no_host, job.cluster.systems))
        pipelines = Pipelines(job, space, hosts)
        rows = cls(job=job, space=space, choices=Options(job, space), pipelines=pipelines)
        every = list(dict.fromkeys(all_degrees(job, space)))  # a value may be listed twice
        for done, number in enumerate(scattered(len(every), stop)):
            if done >= SCATTERED and rows.shapes and stop.due:
                rows.unlisted = f"{len(every) - done:,} of {len(every):,} degrees were not listed"
                break
            rows.add(every[number], number)
        return rows

    def add(self, degrees: Degrees, number: int) -> None:
        """Add all plans of some degrees: every schedule and number of chunks, with every option.

        `number` is that of the degrees among all.
        """
        job, single = self.job, _single(self.space, degrees, self.job.model)
        options, judged = self.choices.of(single), self.pipelines.of(single)
        beside = len({*self.space.recompute}) * judged.asked
        if self.space.common.actions is None:
            message = violation(single, job.model, job.cluster, DEGREE_RULES)
            message = message or unheld_heads(job, single)
            if message is not None:  # what is wrong with one chunk a rank is so with all
                each = len(options.legal) + options.refused.total()
                self.reasons[message] += each * beside
                return
        for message, number in options.refused.items():
            self.reasons[message] += number * beside
        for message, number in judged.refused.items():
            self.reasons[message] += number * len(options.legal) * len({*self.space.recompute})
        for pipeline in judged.legal:
            self._add(single, pipeline, options.legal, number)

    def _add(self, single: Plan, pipeline: Pipeline, options: Ints, degrees: int) -> None:
        """Add all plans of one shape."""
        schedule, v, layers = pipeline
        plans = np.full(len(options), self._number(layers))
        if self.job.software.executor:
            plan = replace(single, schedule=schedule, v=v)
            plans = self._runnable(plan, options, layers)
            options, plans = options[plans >= 0], plans[plans >= 0]
        if len(options):
            self.shapes.append(_Shape(single, schedule, v, options, plans, degrees))

    def _number(self, layers: tuple[StageLayers, ...], kept: tuple[int, ...] | None = None) -> int:
        """The number of the savings with some numbers of layers; of some of them where `kept`."""
        decisive = (layers, kept)
        if decisive not in self.savings:
            every = savings_of(self.space, layers)
            self.savings[decisive] = every if kept is None else every.take(np.array(kept))
        return list(self.savings).index(decisive)

    def _runnable(self, plan: Plan, options: Ints, layers: tuple[StageLayers, ...]) -> Index:
        """The savings of each option of a shape that parsim's executor runs, (N,); -1 where none.

        The others are refused.
        """
        every, numbers = savings_of(self.space, layers), []
        for option in options.tolist():
            kept = tuple(self._run(with_option(plan, option), every))
            numbers.append(self._number(layers, kept) if kept else -1)
        return np.array(numbers, dtype=np.int64)

    def _run(self, plan: Plan, every: Savings) -> Iterator[int]:
        """Which of a plan's savings parsim's executor runs."""
        rows = zip(every.recompute, every.recompute_layers, every.offload_layers, strict=True)
        for number, (recompute, again, moved) in enumerate(rows):
            tried = replace(
                plan,
                recompute=Recompute(recompute),
                recompute_layers=max(int(again), 0),
                offload_layers=int(moved),
            )
            message = unrun(self.job, tried)
            if message is None:
                yield number
            else:
                self.reasons[message] += 1

    def families(self) -> Families | None:
        """All shapes with all their options and savings; None where there are none."""
        if not self.shapes:
            return None
        # without a pipeline first: each of the two kinds lies in one piece
        shapes = sorted(self.shapes, key=lambda shape: (shape.plan.pp > 1, shape.degrees))
        common = replace(self.space.common, stage_layers=None)
        return Families(
            plain=_plain(shapes, common),
            saving=np.concatenate([shape.saving for shape in shapes]),
            savings=tuple(self.savings.values()),
            settings=(common,),
            begin=np.zeros(1, dtype=np.int64),
        )


SCATTERED = 64
"""Degrees that are listed however late it is."""


def scattered(number: int, stop: Stop) -> list[int]:
    """So many numbers from 0: in their order, or scattered where a search may stop among them."""
    order = range(number)
    return Random(0).sample(order, number) if stop.limited else list(order)


def _plain(shapes: Sequence[_Shape], common: Plan) -> PlanTable:
    """The plans of some shapes as columns, which save no memory."""
    each = [len(shape.options) for shape in shapes]
    names = tuple(dict.fromkeys(shape.schedule for shape in shapes))
    columns = [(*shape.row, names.index(shape.schedule)) for shape in shapes]
    rows = np.repeat(np.ascontiguousarray(np.array(columns, dtype=np.int64).T), each, axis=1)
    tp, pp, cp, dp, ep, size, count, v, schedule = rows
    options = np.concatenate([shape.options for shape in shapes])
    stage, shard, sequence = np.ascontiguousarray(options.T)
    nothing = np.zeros_like(tp)
    return PlanTable(
        tp=tp,
        pp=pp,
        dp_replicate=dp // shard,
        dp_shard=shard,
        cp=cp,
        ep=ep,
        etp=np.full_like(tp, common.etp),
        microbatch_size=size,
        num_microbatches=count,
        v=v,
        zero_stage=stage,
        sequence_parallel=sequence > 0,
        recompute=nothing,
        recompute_layers=nothing,
        offload_layers=nothing,
        schedule=schedule,
        schedules=names,
        setting=nothing,
        settings=(replace(common, **PLAIN),),
    )


def _single(space: PlanSpace, degrees: Degrees, model: Model) -> Plan:
    """A plan of some degrees whose pipeline, if it has one, is of one chunk a rank."""
    return replace(
        space.common,
        tp=degrees.tp,
        pp=degrees.pp,
        dp_replicate=degrees.dp,
        dp_shard=1,
        cp=degrees.cp,
        ep=degrees.ep,
        zero_stage=0,
        microbatch_size=degrees.microbatch_size,
        num_microbatches=space.global_batch_size // (degrees.dp * degrees.microbatch_size),
        schedule="1f1b",
        v=1,
        sequence_parallel=model.experts is not None and degrees.tp > 1,
        stage_layers=None,
    )
