"""The legal plans of a space whose settings are fixed, and what the rules refuse of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from parsim.arrays import Ints
from parsim.cost.job import Job
from parsim.cost.legal import unheld_heads, unrun
from parsim.cost.step.offload import no_host
from parsim.model.model import Model
from parsim.plan import Plan, PlanSpace, PlanTable, Recompute
from parsim.plan.rules.violation import LAYER_RULES, RULES, SHAPE_RULES, violation
from parsim.planner.space.options import Options, StageLayers, numbers_of_layers
from parsim.planner.space.shapes import Degrees, all_degrees, chunks


@dataclass(slots=True)
class Listing:
    """Legal shapes so far, each with its options, and what was refused.

    `hosts` says whether hosts take activations; `wrong` what is wrong with numbers of layers of a
    shape.
    """

    job: Job
    space: PlanSpace
    choices: Options
    hosts: bool
    shapes: list[tuple[int, ...]] = field(default_factory=list)
    schedules: list[str] = field(default_factory=list)
    options: list[Ints] = field(default_factory=list)
    reasons: Counter[str] = field(default_factory=Counter)
    wrong: dict[tuple[object, ...], str | None] = field(default_factory=dict)
    numbers: dict[tuple[int, str, int], tuple[StageLayers, ...]] = field(default_factory=dict)

    @classmethod
    def of(cls, job: Job, space: PlanSpace) -> Listing:
        """All shapes of a space whose plans share all settings."""
        hosts = space.offload_layers is not None and not any(map(no_host, job.cluster.systems))
        rows = cls(job=job, space=space, choices=Options(job, space), hosts=hosts)
        for degrees in dict.fromkeys(all_degrees(job, space)):  # a value may be listed twice
            rows.add(degrees)
        return rows

    def add(self, degrees: Degrees) -> None:
        """Add all plans of some degrees: every schedule and number of chunks, with every option."""
        job, space = self.job, self.space
        each = len(self.choices.of(degrees))
        kinds = [
            (schedule, v, self._numbers(degrees.pp, schedule, v))
            for schedule, v in dict.fromkeys(chunks(job, space, degrees.pp))
        ]
        single = _plan(space, degrees, job.model)
        rules = tuple(rule for rule in RULES if rule not in LAYER_RULES)
        if (
            space.common.actions is None
        ):  # what is wrong with a pipeline of one chunk is so with all
            message = violation(single, job.model, job.cluster) or unheld_heads(job, single)
            if message is not None:
                self.reasons[message] += each * sum(len(layers) for _, _, layers in kinds)
                return
            rules = SHAPE_RULES
        for schedule, v, layers in kinds:
            plan = replace(single, schedule=schedule, v=v)
            message = violation(plan, job.model, job.cluster, rules) or _unplaced(job, plan)
            message = message or unheld_heads(job, plan)
            if message is not None:
                self.reasons[message] += each * len(layers)
                continue
            options = self.choices.of(degrees, tuple(self._legal(plan, layers, each)))
            if job.software.executor:
                options = self._runnable(plan, degrees, options)
            if len(options):
                self.shapes.append(_shape_row(plan, degrees))
                self.schedules.append(schedule)
                self.options.append(options)

    def _numbers(self, pp: int, schedule: str, v: int) -> tuple[StageLayers, ...]:
        """Numbers of layers that plans of a pipeline may have, looked up once."""
        pipeline = (pp, schedule, v)
        if pipeline not in self.numbers:
            self.numbers[pipeline] = numbers_of_layers(
                self.job, self.space, *pipeline, hosts=self.hosts
            )
        return self.numbers[pipeline]

    def _legal(self, plan: Plan, layers: Sequence[StageLayers], each: int) -> Iterator[StageLayers]:
        """Yield the numbers of layers that an otherwise legal plan may have.

        Each of the others refuses `each` plans. What the rules read, beside what all plans share,
        is looked at once.
        """
        for numbers in layers:
            shape = (plan.schedule, plan.pp, plan.v, numbers)
            if shape not in self.wrong:
                self.wrong[shape] = violation(
                    _with_layers(plan, numbers), self.job.model, self.job.cluster, LAYER_RULES
                )
            message = self.wrong[shape]
            if message is None:
                yield numbers
            else:
                self.reasons[message] += each

    def _runnable(self, plan: Plan, degrees: Degrees, options: Ints) -> Ints:
        """The options of a shape that parsim's executor runs; the others are refused."""
        legal = np.ones(len(options), dtype=bool)
        for number, (stage, shard, recompute, sequence, *layers) in enumerate(options.tolist()):
            tried = replace(
                _with_layers(plan, StageLayers(*layers)),
                zero_stage=stage,
                recompute=Recompute(recompute),
                sequence_parallel=bool(sequence),
                dp_replicate=degrees.dp // shard,
                dp_shard=shard,
            )
            message = unrun(self.job, tried)
            if message is not None:
                legal[number] = False
                self.reasons[message] += 1
        return options[legal]

    def table(self) -> PlanTable | None:
        """All shapes with all their options as columns; None where there are none."""
        if not self.shapes:
            return None
        names = tuple(dict.fromkeys(self.schedules))
        # without a pipeline first: each of the two kinds lies in one piece
        order = sorted(range(len(self.shapes)), key=lambda number: self.shapes[number][1] > 1)
        shapes, kinds, every = (
            [rows[number] for number in order]
            for rows in (self.shapes, self.schedules, self.options)
        )
        each = [len(options) for options in every]
        columns = np.ascontiguousarray(np.array(shapes, dtype=np.int64).T)
        tp, pp, cp, dp, ep, size, count, v = np.repeat(columns, each, axis=1)
        options = np.ascontiguousarray(np.concatenate(every).T)
        stage, shard, recompute, sequence, offload, again = options
        return PlanTable(
            tp=tp,
            pp=pp,
            dp_replicate=dp // shard,
            dp_shard=shard,
            cp=cp,
            ep=ep,
            etp=np.full_like(tp, self.space.common.etp),
            microbatch_size=size,
            num_microbatches=count,
            v=v,
            zero_stage=stage,
            sequence_parallel=sequence > 0,
            recompute=recompute,
            recompute_layers=again,
            offload_layers=offload,
            schedule=np.repeat(np.array([names.index(name) for name in kinds]), each),
            schedules=names,
            setting=np.zeros_like(tp),
            settings=(replace(self.space.common, stage_layers=None),),
        )


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


def _plan(space: PlanSpace, degrees: Degrees, model: Model) -> Plan:
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


def _shape_row(plan: Plan, degrees: Degrees) -> tuple[int, ...]:
    """What `Listing.table` needs of a shape."""
    sizes = (plan.microbatch_size, plan.num_microbatches, plan.v)
    return (degrees.tp, degrees.pp, degrees.cp, degrees.dp, degrees.ep, *sizes)
