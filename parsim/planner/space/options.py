"""What plans of one shape may differ in: options, savings of memory, and settings.

Options are a row of numbers each: ZeRO stage, dp_shard, sequence parallelism. Most shapes share
an array of options, and savings, with others: both are made once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from parsim.arrays import Flags, Ints
from parsim.cost.job import Job
from parsim.cost.legal import states_on_host
from parsim.plan import Plan, PlanSpace, PlanTable, Recompute
from parsim.plan.names import AUTO
from parsim.plan.rules.degrees import divisors, expert_rules
from parsim.plan.space import FEWEST, Between, chosen
from parsim.planner.space.families import Savings
from parsim.planner.space.shapes import offloads
from parsim.space.axes import SETTINGS, setting_values

Option = tuple[int, int, bool]
"""ZeRO stage, dp_shard and sequence parallelism."""


class StageLayers(NamedTuple):
    """Numbers of each stage's first layers: on the host, and recomputed as a whole."""

    on_host: int = 0
    repeated: int = 0


def numbers_of_layers(
    job: Job, space: PlanSpace, pp: int, schedule: str, v: int, *, hosts: bool
) -> tuple[StageLayers, ...]:
    """Numbers of layers that a space asks for, those on the host beside none recomputed.

    Where it asks for nothing but both together, these pairs, which the rules refuse.
    """
    moved = offloads(job, space, pp, schedule, v, hosts=hosts)
    again = _repeats(job, space, pp, schedule, v)
    pairs = [
        (some, 0 if some and number == FEWEST else number) for some in moved for number in again
    ]
    allowed = [pair for pair in pairs if not all(pair)]
    return tuple(StageLayers(*pair) for pair in dict.fromkeys(allowed or pairs))


def _repeats(job: Job, space: PlanSpace, pp: int, schedule: str, v: int) -> tuple[int, ...]:
    """Numbers of recomputed layers of each stage: those asked for, none where nothing is said.

    A range holds those of the largest stage's, without all of them where full recomputation is
    another plan. Of `auto` a layer more may leave room for a faster order: it has no fewest.
    """
    asked = space.recompute_layers
    if asked is None:
        return (0,)
    if not isinstance(asked, Between):
        none = schedule == AUTO or job.software.checkpoints_stages
        return tuple(0 if none and number == FEWEST else number for number in asked)
    most = -(-job.model.num_layers // (pp * v))
    all_of_them = Recompute.FULL not in space.recompute
    return chosen(asked, range(most + all_of_them))


class JudgedOptions(NamedTuple):
    """Legal options of some degrees, (N, 3), and why how many others are refused."""

    legal: Ints
    refused: Counter[str]


@dataclass(slots=True)
class Options:
    """The options of a space, judged once for all degrees that have the same."""

    job: Job
    space: PlanSpace
    judged: dict[tuple[object, ...], JudgedOptions] = field(default_factory=dict)

    def of(self, single: Plan) -> JudgedOptions:
        """All options of a plan's degrees."""
        job = self.job
        whole = job.model.tokens % (single.cp * single.tp) == 0
        stages = job.software.zero_stages_with(single.pp)
        decisive: tuple[object, ...] = (stages, single.dp, single.cp == 1, single.tp == 1, whole)
        if single.ep * single.etp > 1:  # experts are divided over what shares parameters
            decisive = (*decisive, single.pp == 1, single.tp, single.cp, single.ep)
        if decisive not in self.judged:
            self.judged[decisive] = self._judge(single)
        return self.judged[decisive]

    def _judge(self, single: Plan) -> JudgedOptions:
        job, legal, refused = self.job, list[Option](), Counter[str]()
        for option in dict.fromkeys(_options(job, self.space, single)):
            plan = with_option(single, option)
            message = expert_rules(plan, job.model, job.cluster) or states_on_host(job, plan)
            if message is None:
                legal.append(option)
            else:
                refused[message] += 1
        return JudgedOptions(np.array(legal, dtype=np.int64).reshape(-1, 3), refused)


def with_option(plan: Plan, option: Option) -> Plan:
    """A plan of the same degrees with another option."""
    stage, shard, sequence = option
    return replace(
        plan,
        zero_stage=stage,
        dp_replicate=plan.dp // shard,
        dp_shard=shard,
        sequence_parallel=bool(sequence),
    )


def savings_of(space: PlanSpace, layers: Iterable[StageLayers]) -> Savings:
    """Every recomputation of a space with each of some numbers of layers."""
    listed = [
        (recompute, again, numbers.on_host)
        for numbers in layers
        for recompute in space.recompute
        for again in _beside(recompute, numbers.repeated)
    ]
    return Savings.of(list(dict.fromkeys(listed)))


def _beside(recompute: Recompute, repeated: int) -> Iterator[int]:
    """The number of recomputed layers beside what a plan recomputes of all; with all no number."""
    if recompute is not Recompute.FULL:
        yield repeated
    elif repeated in (0, FEWEST):
        yield 0


def _shards(space: PlanSpace, degrees: Plan, zero_stage: int) -> tuple[int, ...]:
    """Replicas that share the parameters: all of them, or with HSDP also a part; 1 without ZeRO."""
    if space.dp_shard is None:
        return (degrees.dp if zero_stage else 1,)
    legal = (divisors(degrees.dp)[1:] or [1]) if zero_stage else [1]
    return tuple(shard for shard in legal if shard in space.dp_shard)


def _options(job: Job, space: PlanSpace, degrees: Plan) -> Iterator[Option]:
    model, stages = job.model, job.software.zero_stages_with(degrees.pp)
    whole = model.tokens % (degrees.cp * degrees.tp) == 0
    routed = model.experts is not None and degrees.tp > 1  # each rank routes its own tokens
    for stage in chosen(space.zero_stage, stages):
        if stage and degrees.dp * degrees.cp == 1:
            continue
        shards = _shards(space, degrees, stage)
        for shard, sequence in product(shards, space.sequence_parallel):
            if (sequence and (degrees.tp == 1 or not whole)) or (routed and not sequence):
                continue
            yield (stage, shard, sequence)


PLAIN = {name: setting.plain for name, setting in SETTINGS.items() if setting.plain is not None}
"""Settings whose other values save memory at the price of time, and the one that saves none."""

Values = Mapping[str, Any]
"""One value of each setting that a space varies."""


def combinations(job: Job, space: PlanSpace) -> Iterator[Values]:
    """Each combination of the settings' values, that which plans share by itself first.

    overlap_grad_reduce  true | false      the first combination has every legal plan; another one
    rank_order           pp first | dp     those rows that all of its other values make other plans
    """
    names = tuple(name for name in SETTINGS if name in space.varied)  # in no order of a file
    for values in product(*(setting_values(job, space, name) for name in names)):
        yield dict(zip(names, values, strict=True))


def ruled(job: Job, values: Values) -> tuple[Any, ...]:
    """The values that decide which plans are legal: of equal ones one enumeration is enough."""
    every = job.software.executor  # which refuses plans by any of their fields
    return tuple(value for name, value in values.items() if every or SETTINGS[name].rules(job))


def with_setting(space: PlanSpace, values: Values) -> PlanSpace:
    """The space whose plans all share these values."""
    return replace(space, common=replace(space.common, **values), varied={})


def other_plans(table: PlanTable, first: Values, values: Values, *, saved: bool) -> Flags:
    """The rows that are other plans with these values than with any combination before.

    By the settings that save memory, where `saved`, or by the others.
    """
    rows = np.ones(len(table), dtype=bool)
    for name, value in values.items():
        if value != first[name] and (name in PLAIN) == saved:
            rows &= SETTINGS[name].differs(table)
    return rows


def layer_settings(table: PlanTable) -> np.ndarray[Any, np.dtype[np.int64]]:
    """A number of each row, (B,): rows of one number have layers that cost the same."""
    idle = [name for name, setting in SETTINGS.items() if not setting.layers]
    first = table.settings[0]
    same = {name: getattr(first, name) for name in (*idle, "stage_layers")}
    first_of: dict[Plan, int] = {}
    alike = [replace(plan, **same) for plan in table.settings]
    numbers = np.array([first_of.setdefault(plan, number) for number, plan in enumerate(alike)])
    return np.asarray(numbers[table.setting])
