"""What a search of a space does not look at, or may not, so that nobody takes its best for all."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from parsim.cost.job import Job
from parsim.cost.software import Software
from parsim.plan import PlanSpace, Recompute
from parsim.plan.names import AUTO, SCHEDULE_NAMES, USUAL
from parsim.plan.rules.degrees import ZERO_STAGES
from parsim.plan.space import FEWEST, Between
from parsim.plan.strategies import DDP, STRATEGY_KINDS
from parsim.space.axes import AXES, SETTINGS, setting_values
from parsim.space.words import axis_words, value_word

ALL_BUT = "all but "
"""How a text begins that names the values that were looked at."""

NEVER = {
    "action_times": "zero-bubble orders for other times than F = I = W",
    "offload_modules": "single modules' activations on the host",
}
"""Fields of a plan that no search varies, and what it leaves out with them."""

UNSAID = {
    "dp_shard": "shards over a part of the replicas: dp_replicate and dp_shard both above 1",
    "recompute_layers": "recomputation of some layers of each stage",
    "offload_layers": "activations in the host's memory",
    "recompute_modules": "recomputation of single modules",
}
"""What a space leaves out whose axis is not said."""


def with_full(name: str) -> str:
    """How the words about an axis end that is looked at with more space or where it is named."""
    return f", but with space: full or search.{name}"


ALL = {
    "recompute": tuple(Recompute),
    "sequence_parallel": (False, True),
}
"""Values of those axes of a space that list them."""

COMMON = ("bucket_bytes", "reduce_precision", "gradient_precision", "precision")
"""Fields that all plans of a search share, whatever its space is."""


def left_out(job: Job, space: PlanSpace) -> dict[str, str]:
    """What a search of this space does not look at, by field of a plan."""
    unsaid = {
        name: f"{words}{with_full(name)}"
        for name, words in UNSAID.items()
        if space.allowed(name) is None
    }
    alike = [name for name in SETTINGS if name not in space.varied and name not in unsaid]
    shared = {
        name: f"{ALL_BUT}{value_word(getattr(space.common, name))}" for name in (*alike, *COMMON)
    }
    cuts = " and balanced by seconds" if job.software.balanced_cut and not job.mixed else ""
    return {
        **_asked(job, space),
        "stages": _unequal_stages(space),
        "stage_layers": f"cuts other than as even as possible{cuts}",
        **NEVER,
        **unsaid,
        **shared,
    }


def _asked(job: Job, space: PlanSpace) -> dict[str, str]:
    """What the space leaves out by what it says, or by what the software has."""
    asked, software = dict(_narrowed(job, space)), job.software
    if space.offload_layers == Between():
        asked["offload_layers"] = f"{ALL_BUT}none, half and all of a stage's layers"
    if FEWEST in (space.recompute_layers or ()) and AUTO in (space.schedule or ()):
        asked["recompute_layers"] += f", with schedule={AUTO} all but none"
    if space.max_bubble is not None:
        asked["bubble"] = f"more than {100 * space.max_bubble:g} % of the pipeline phase"
    for name, every in ALL.items():
        missing = [value for value in every if value not in getattr(space, name)]
        if missing:
            asked[name] = ", ".join(value_word(value) for value in missing)
    stack = {"schedule": _schedules(software, space), "zero_stage": _zero_stages(software, space)}
    asked |= {name: words for name, words in stack.items() if words}
    if space.strategies:
        looked = _strategies(space)
        asked["strategy"] = ", ".join(name for name in STRATEGY_KINDS if name not in looked)
    return asked


def _unequal_stages(space: PlanSpace) -> str:
    """The pipelines with stages that differ that are not looked at."""
    if space.unequal_stages:
        return "unequal stages that the partitioner cuts otherwise, or more than 8"
    return "those that differ, but with search.unequal_stages"


def _narrowed(job: Job, space: PlanSpace) -> Iterator[tuple[str, str]]:
    """Axes of numbers and settings whose values the space names, and what is looked at."""
    for axis in AXES:
        values = space.allowed(axis.name)
        if values is None or values == Between():
            continue
        if axis.setting is not None and set(axis.setting.every(job)) <= set(
            setting_values(job, space, axis.name)
        ):
            continue
        if axis.setting is not None or axis.kind in ("count", "layers", "repeated"):
            yield axis.name, f"{ALL_BUT}{axis_words(values)}"


def _strategies(space: PlanSpace) -> set[str]:
    """Names of the data-parallel strategies that are looked at."""
    return {DDP.name, *(strategy.name for strategy in space.strategies)}


def lacking(software: Software, space: PlanSpace) -> str:
    """The schedules that a search leaves out because the stack has none of them."""
    if space.schedule is not None or space.common.actions is not None:
        return ""
    return ", ".join(name for name in USUAL if name not in software.schedules)


def _schedules(software: Software, space: PlanSpace) -> str:
    """The schedules that are not looked at, and why."""
    if space.common.actions is not None:
        return f"{ALL_BUT}{space.common.schedule}"
    if space.schedule is not None:
        return ", ".join(name for name in SCHEDULE_NAMES if name not in space.schedule)
    looked = {*USUAL, *software.schedules}
    rare = ", ".join(name for name in SCHEDULE_NAMES if name not in looked)
    names = lacking(software, space)
    parts = [f"{software.id} has no {names}"] if names else []
    parts += [f"seldom used are {rare}"] if rare else []
    return "; ".join([*parts, "search.schedule names them if wanted"] if parts else [])


def _zero_stages(software: Software, space: PlanSpace) -> str:
    """The ZeRO stages that are not looked at, and why."""
    if isinstance(space.zero_stage, tuple):
        return ", ".join(str(stage) for stage in ZERO_STAGES if stage not in space.zero_stage)
    lacked = {
        words: ", ".join(str(stage) for stage in ZERO_STAGES if stage not in has)
        for words, has in (
            ("", software.zero_stages),
            (" with pipelines", software.pipeline_zero_stages),
        )
    }
    if lacked[" with pipelines"] == lacked[""]:
        del lacked[" with pipelines"]
    parts = [f"{stages}{words}" for words, stages in lacked.items() if stages]
    why = f"{software.id} has none of them; search.zero_stage names them if wanted"
    asked = [f"{ALL_BUT}{space.zero_stage}"] if space.zero_stage is not None else []
    return "; ".join([*asked, *([f"{' and '.join(parts)}: {why}"] if parts else [])])


EXAMPLE = "; e.g. "
"""What stands between a rule whose values differ and the message of most plans."""
_VALUE = re.compile(r"(?<==)\d+\b")
MOST_VALUES = 6
"""Values that the words name; of more the first ones and the last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokenRule:
    """A rule that plans break, in words, and how many break it first."""

    words: str
    plans: int


def by_rule(reasons: Mapping[str, int]) -> tuple[BrokenRule, ...]:
    """Messages and their counts by rule, that which most plans break first.

    `tp=64 does not divide num_attention_heads=96; allowed: ...` and the same of tp=128 are one
    rule, told as tp=64|128; where several values differ, the message of most plans is an example.
    """
    groups: dict[str, dict[str, int]] = {}
    for message, count in reasons.items():
        rule = _VALUE.sub("...", message.partition(";")[0])
        groups.setdefault(rule, {})[message] = count
    rules = [
        BrokenRule(words=_words(rule, messages), plans=sum(messages.values()))
        for rule, messages in groups.items()
    ]
    return tuple(sorted(rules, key=lambda rule: (-rule.plans, rule.words)))


def _words(rule: str, messages: Mapping[str, int]) -> str:
    """One text for messages that differ in their values."""
    most = max(messages, key=lambda message: messages[message])
    if len(messages) == 1:
        return most
    numbers = [_VALUE.findall(message.partition(";")[0]) for message in messages]
    columns = list(zip(*numbers, strict=True))
    varying = [number for number, column in enumerate(columns) if len(set(column)) > 1]
    if len(varying) != 1:
        return f"{rule}{EXAMPLE}{most}"
    values = sorted({int(value) for value in columns[varying[0]]})
    named = [str(value) for value in values[:MOST_VALUES]]
    named += [f"... {values[-1]}"] if len(values) > MOST_VALUES else []
    head, sign, tail = most.partition(";")
    match = list(_VALUE.finditer(head))[varying[0]]
    return f"{head[: match.start()]}{'|'.join(named)}{head[match.end() :]}{sign}{tail}"
