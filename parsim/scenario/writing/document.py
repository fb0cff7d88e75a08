"""A scenario with one plan, back to the YAML that reads as the same records."""

from __future__ import annotations

from io import StringIO
from typing import Any

from parsim.cluster.background import Background
from parsim.cost.jitter import Jitter
from parsim.cost.job import ADAMW, CLIP, Job
from parsim.cost.software import Software, changed_switches
from parsim.plan import Plan
from parsim.scenario.record import Scenario
from parsim.scenario.writing.cluster import cluster_block
from parsim.scenario.writing.model import model_block
from parsim.scenario.writing.plan import plan_block, with_said_cut
from parsim.scenario.writing.values import stated_fields, written_value
from parsim.training_run import TrainingGoal
from parsim.units import format_count, parse_count


def scenario_text(scenario: Scenario, plan: Plan) -> str:
    """The YAML of the scenario with `plan` as its plan block.

    Reading it gives an equal model, cluster, software and plan, whose even cut is spelt out where a
    plan that says none would get another one. A space of plans is left out, but for a stated memory
    margin: the file is about one plan. A schedule of the user's own is named by its absolute path.
    """
    from ruamel.yaml import YAML

    document = {
        "description": scenario.description,
        "model": model_block(scenario),
        "cluster": cluster_block(scenario),
        "software": _software(scenario.job.software),
        "training": {
            "global_batch_size": plan.global_batch_size,
            "precision": plan.precision,
            **_update(scenario.job),
            **_goal(scenario.goal),
        },
        "plan": plan_block(with_said_cut(scenario, plan)),
        **_margin(scenario),
        **_jitter(scenario.jitter),
        **_background(scenario.background),
        **_failures(scenario.goal),
    }
    yaml, text = YAML(), StringIO()
    yaml.width = 100
    yaml.default_flow_style = False
    yaml.dump(document, text)
    return text.getvalue()


def _software(stack: Software) -> str | dict[str, Any]:
    """A stack's name, with what the scenario switched where it did."""
    return {"name": stack.id, **changed_switches(stack)} if changed_switches(stack) else stack.id


def _update(job: Job) -> dict[str, Any]:
    """What is not usual about the update of the parameters."""
    return {
        **({"optimizer": job.optimizer.name} if job.optimizer != ADAMW else {}),
        **({"clip": job.clip} if job.clip != CLIP else {}),
    }


def _margin(scenario: Scenario) -> dict[str, Any]:
    """The memory that the file wants free: the plan then fits by what it was chosen by."""
    stated = scenario.memory_margin
    return {} if stated is None else {"search": {"memory_margin": stated}}


def _background(background: Background) -> dict[str, Any]:
    """Storage and streams, where there are any."""
    streams = {
        stream.name: {
            "from": stream.source,
            "to": stream.target,
            "every": stream.every,
            **stated_fields(stream, "size", "rate"),
        }
        for stream in background.streams
    }
    values = {"streams": streams} if streams else {}
    values |= stated_fields(background, "storage_bandwidth")
    return {"background": values} if values else {}


def _jitter(jitter: Jitter) -> dict[str, Any]:
    """What the file stated; the rest has defaults."""
    values = {name: written_value(name, getattr(jitter, name)) for name in sorted(jitter.stated)}
    if "slow_ranks" in values:
        values["slow_ranks"] = dict(jitter.slow_ranks)
    return {"jitter": values} if values else {}


def _goal(goal: TrainingGoal) -> dict[str, Any]:
    """Tokens, price and site, where they are not the defaults."""
    values: dict[str, Any] = {}
    if goal.tokens is not None:
        text = format_count(goal.tokens)
        values["tokens"] = text if parse_count(text) == goal.tokens else goal.tokens
    default = TrainingGoal()
    for name in ("usd_per_device_hour", "pue"):
        if getattr(goal, name) != getattr(default, name):
            values[name] = getattr(goal, name)
    return values


def _failures(goal: TrainingGoal) -> dict[str, Any]:
    """What the file stated; the rest has defaults."""
    failures = goal.failures
    values = {
        name: written_value(name, getattr(failures, name)) for name in sorted(failures.stated)
    }
    return {"failures": values} if values else {}
