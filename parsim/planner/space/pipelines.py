"""Pipelines of a space: which schedules, chunks and numbers of layers are legal on so many ranks.

The rules of pipelines read the number of stages and of micro-batches, not how the other ranks are
divided, so that thousands of degrees share some hundred answers.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, fields, replace
from typing import NamedTuple

from parsim.cost.job import Job
from parsim.cost.legal import uneven_cut, unsupported
from parsim.plan import Plan, PlanSpace
from parsim.plan.names import WITHOUT_FLUSH
from parsim.plan.rules.degrees import expert_rules
from parsim.plan.rules.violation import LAYER_RULES, RULES, SHAPE_RULES, violation
from parsim.planner.space.options import StageLayers, numbers_of_layers
from parsim.planner.space.shapes import chunks, schedules


class Pipeline(NamedTuple):
    """A schedule with its chunks, and numbers of layers that its plans may have."""

    schedule: str
    v: int
    layers: tuple[StageLayers, ...]


class JudgedPipelines(NamedTuple):
    """Legal pipelines, why others are refused with how many numbers of layers, how many in all."""

    legal: tuple[Pipeline, ...]
    refused: Counter[str]
    asked: int


class JudgedLayers(NamedTuple):
    """Legal numbers of layers, and why how many others are refused."""

    legal: tuple[StageLayers, ...]
    refused: Counter[str]


@dataclass(slots=True)
class Pipelines:
    """Pipelines of a space whose plans share all settings; `hosts` says that hosts take bytes."""

    job: Job
    space: PlanSpace
    hosts: bool
    judged: dict[tuple[int, ...], JudgedPipelines] = field(default_factory=dict)
    asked: dict[int, tuple[Pipeline, ...]] = field(default_factory=dict)
    layers: dict[tuple[object, ...], JudgedLayers] = field(default_factory=dict)

    def of(self, plan: Plan) -> JudgedPipelines:
        """All pipelines on a plan's ranks; its own is of one chunk a rank, if it has one."""
        decisive: tuple[int, ...] = (plan.pp, plan.num_microbatches)
        if self.space.common.actions is not None:  # whose rules read all degrees
            decisive = (*decisive, plan.tp, plan.cp, plan.dp, plan.ep, plan.microbatch_size)
        elif not {*WITHOUT_FLUSH}.isdisjoint(schedules(self.job, self.space)):
            decisive = (*decisive, plan.dp, plan.cp)
        if decisive not in self.judged:
            self.judged[decisive] = self._judge(plan)
        return self.judged[decisive]

    def _judge(self, single: Plan) -> JudgedPipelines:
        legal, refused = [], Counter[str]()
        shared = {each.name: getattr(single, each.name) for each in fields(Plan)}
        for schedule, v, layers in self._asked(single.pp):
            plan = Plan(**{**shared, "schedule": schedule, "v": v})
            message = self._message(plan)
            if message is None:
                judged = self._layers(plan, layers)
                legal.append(Pipeline(schedule, v, judged.legal))
                refused.update(judged.refused)
            else:
                refused[message] += len(layers)
        asked = sum(len(each.layers) for each in self._asked(single.pp))
        return JudgedPipelines(tuple(each for each in legal if each.layers), refused, asked)

    def _asked(self, pp: int) -> tuple[Pipeline, ...]:
        """All pipelines of so many ranks that the space asks for, legal or not."""
        job, space, hosts = self.job, self.space, self.hosts
        if pp not in self.asked:
            kinds = dict.fromkeys(chunks(job, space, pp))
            each = [numbers_of_layers(job, space, pp, *kind, hosts=hosts) for kind in kinds]
            rows = zip(kinds, each, strict=True)
            self.asked[pp] = tuple(Pipeline(*kind, layers) for kind, layers in rows)
        return self.asked[pp]

    def _message(self, plan: Plan) -> str | None:
        """What is wrong with a plan of legal degrees; of any where the schedule is the user's."""
        job, named = self.job, self.space.common.actions is None
        rules = SHAPE_RULES if named else DEGREE_RULES
        message = violation(plan, job.model, job.cluster, rules) or _unplaced(job, plan)
        message = message or uneven_cut(job, plan)
        return message if named else message or unsupported(job, plan)

    def _layers(self, plan: Plan, layers: tuple[StageLayers, ...]) -> JudgedLayers:
        """Which numbers of layers an otherwise legal plan may have.

        What the rules read, beside what all plans share, is looked at once.
        """
        shape = (plan.schedule, plan.pp, plan.v)
        if shape not in self.layers:
            legal, refused = [], Counter[str]()
            for numbers in layers:
                tried = _with_layers(plan, numbers)
                message = violation(tried, self.job.model, self.job.cluster, LAYER_RULES)
                if message is None:
                    legal.append(numbers)
                else:
                    refused[message] += 1
            self.layers[shape] = JudgedLayers(tuple(legal), refused)
        return self.layers[shape]


DEGREE_RULES = tuple(rule for rule in RULES if rule not in (*LAYER_RULES, expert_rules))
"""Rules that read neither numbers of layers nor the options that decide where experts go."""


def _with_layers(plan: Plan, numbers: StageLayers) -> Plan:
    """A plan with these numbers of layers; the fewest that fit may be none."""
    again = max(numbers.repeated, 0)
    return replace(plan, offload_layers=numbers.on_host, recompute_layers=again)


def _unplaced(job: Job, plan: Plan) -> str | None:
    """Why a schedule is not searched on nodes of several kinds; or None."""
    if not job.mixed or plan.copies == 1:
        return None
    return (
        f"schedule={plan.schedule!r} holds each stage on two ranks: on nodes of several kinds no "
        f"placement is searched for it; use 'dualpipe_v', or simulate it with a plan"
    )
