"""The legal plans of a space whose settings are fixed, and what the rules refuse of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from random import Random

import numpy as np

from parsim.arrays import Ints
from parsim.cost.job import Job
from parsim.cost.legal import unrun, unsupported
from parsim.cost.step.offload import no_host
from parsim.model.model import Model
from parsim.plan import Plan, PlanSpace, Recompute
from parsim.plan.rules.violation import violation
from parsim.planner.space.alike import Alike, plain_plans
from parsim.planner.space.families import Families, Savings
from parsim.planner.space.options import Options, StageLayers, savings_of, with_option
from parsim.planner.space.pipelines import DEGREE_RULES, Pipeline, Pipelines
from parsim.planner.space.shapes import Degrees, all_degrees
from parsim.planner.stop import Stop


@dataclass(slots=True)
class Listing:
    """Legal plans so far, those of equal degrees together, and what was refused."""

    job: Job
    space: PlanSpace
    choices: Options
    pipelines: Pipelines
    alike: list[Alike] = field(default_factory=list)
    names: dict[str, int] = field(default_factory=dict)
    savings: dict[tuple[object, ...], int] = field(default_factory=dict)
    every: list[Savings] = field(default_factory=list)
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
            if done >= SCATTERED and rows.alike and stop.due:
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
            message = message or unsupported(job, single)
            if message is not None:  # what is wrong with one chunk a rank is so with all
                each = len(options.legal) + options.refused.total()
                self.reasons[message] += each * beside
                return
        for message, number in options.refused.items():
            self.reasons[message] += number * beside
        for message, number in judged.refused.items():
            self.reasons[message] += number * len(options.legal) * len({*self.space.recompute})
        if judged.legal and len(options.legal):
            self._add(single, judged.legal, options.legal, number)

    def _add(
        self, single: Plan, pipelines: Sequence[Pipeline], options: Ints, degrees: int
    ) -> None:
        """Add all plans of some degrees: every pipeline with every option."""
        names = self.names
        columns = [
            (names.setdefault(schedule, len(names)), v, self._number(layers))
            for schedule, v, layers in pipelines
        ]
        each = np.repeat(np.array(columns, dtype=np.int64), len(options), axis=0)
        alike = Alike(
            plan=single,
            pipelines=each[:, :2],
            options=np.tile(options, (len(pipelines), 1)),
            saving=each[:, 2],
            degrees=degrees,
        )
        if self.job.software.executor:
            alike = self._runnable(alike, pipelines, options)
        if len(alike.saving):
            self.alike.append(alike)

    def _number(self, layers: tuple[StageLayers, ...], kept: tuple[int, ...] | None = None) -> int:
        """The number of the savings with some numbers of layers; of some of them where `kept`."""
        decisive = (layers, kept)
        if decisive not in self.savings:
            every = savings_of(self.space, layers)
            self.savings[decisive] = len(self.every)
            self.every.append(every if kept is None else every.take(np.array(kept)))
        return self.savings[decisive]

    def _runnable(self, alike: Alike, pipelines: Sequence[Pipeline], options: Ints) -> Alike:
        """Keep what parsim's executor runs, with the savings that it runs; refuse the others."""
        numbers = []
        for schedule, v, layers in pipelines:
            plan = replace(alike.plan, schedule=schedule, v=v)
            every = savings_of(self.space, layers)
            for option in options.tolist():
                kept = tuple(self._run(with_option(plan, option), every))
                numbers.append(self._number(layers, kept) if kept else -1)
        runs = np.array(numbers) >= 0
        return alike._replace(
            pipelines=alike.pipelines[runs],
            options=alike.options[runs],
            saving=np.array(numbers, dtype=np.int64)[runs],
        )

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
        """All plans with all their options and savings; None where there are none."""
        if not self.alike:
            return None
        # without a pipeline first: each of the two kinds lies in one piece
        every = sorted(self.alike, key=lambda alike: (alike.plan.pp > 1, alike.degrees))
        common = replace(self.space.common, stage_layers=None)
        return Families(
            plain=plain_plans(every, tuple(self.names), common),
            saving=np.concatenate([alike.saving for alike in every]),
            savings=tuple(self.every),
            settings=(common,),
            begin=np.zeros(1, dtype=np.int64),
        )


SCATTERED = 64
"""Degrees that are listed however late it is."""


def scattered(number: int, stop: Stop) -> list[int]:
    """So many numbers from 0: in their order, or scattered where a search may stop among them."""
    order = range(number)
    return Random(0).sample(order, number) if stop.limited else list(order)


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
