"""A scenario with one plan, back to the YAML that reads as the same records."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

from parsim.cluster.background import Background
from parsim.cluster.hardware import System
from parsim.cluster.reader import Catalog, load_catalog
from parsim.cost.jitter import Jitter
from parsim.cost.job import ADAMW, CLIP, Job
from parsim.cost.software import Software, changed_switches
from parsim.cost.step.stages import even_cut
from parsim.model.graph.record import Graph
from parsim.model.reader import load_model_catalog
from parsim.plan import Plan
from parsim.plan.names import V_SHAPED
from parsim.plan.strategies import DDP
from parsim.scenario.record import Scenario
from parsim.scenario.written import changed_fields, stated_fields, values_of, written_value
from parsim.sim.cuts import with_better_cut
from parsim.training_run import TrainingGoal
from parsim.units import format_count, parse_count

_CLUSTER_KEYS = (
    *("system", "nodes", "catalog", "device", "placement", "failed"),
    *("devices_per_node", "intra", "network"),
)


def scenario_text(scenario: Scenario, plan: Plan) -> str:
    """The YAML of the scenario with `plan` as its plan block.

    Reading it gives an equal model, cluster, software and plan, whose even cut is spelt out where a
    plan that says none would get another one. A space of plans is left out, but
    for a stated memory margin: the file is about one plan. A schedule of the user's own is named by
    its absolute path.
    """
    from ruamel.yaml import YAML

    document = {
        "description": scenario.description,
        "model": _model(scenario),
        "cluster": _cluster(scenario),
        "software": _software(scenario.job.software),
        "training": {
            "global_batch_size": plan.global_batch_size,
            "precision": plan.precision,
            **_update(scenario.job),
            **_goal(scenario.goal),
        },
        "plan": _plan(_with_said_cut(scenario, plan)),
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


def _with_said_cut(scenario: Scenario, plan: Plan) -> Plan:
    """The plan with its even cut said, where the reader would choose the balanced one."""
    if with_better_cut(scenario.job, plan, scenario.memory_margin) == plan:
        return plan
    return replace(plan, stage_layers=even_cut(scenario.job.model.num_layers, plan.num_stages))


def _software(stack: Software) -> str | dict[str, Any]:
    """A stack's name, with what the scenario switched where it did."""
    return {"name": stack.id, **changed_switches(stack)} if changed_switches(stack) else stack.id


def _update(job: Job) -> dict[str, Any]:
    """What is not usual about the update of the parameters."""
    return {
        **({"optimizer": job.optimizer.name} if job.optimizer != ADAMW else {}),
        **({"clip": job.clip} if job.clip != CLIP else {}),
    }


def _model(scenario: Scenario) -> dict[str, Any]:
    """The catalog's name and what differs, or else every field.

    Attention is as the software has it where nothing is said of it.
    """
    if isinstance(scenario.model, Graph):
        return _graph(scenario.model)
    spec, known = scenario.model, load_model_catalog()
    if spec.name not in known:
        return {"family": "gpt2", **values_of(spec)}
    block = {"name": spec.name, **changed_fields(known[spec.name], spec)}
    block.pop("fused_attention", None)
    if spec.fused_attention != scenario.job.software.fused_attention:
        block["fused_attention"] = spec.fused_attention
    return block


def _graph(graph: Graph) -> dict[str, Any]:
    """A network by its name and what differs from it, or the file that it was read from."""
    if graph.path:
        return {"file": graph.path}
    from parsim.model.graph.catalog import network, reads_text
    from parsim.model.graph.losses import classes

    if reads_text(graph.name):
        return {"name": graph.name, "seq_len": graph.input_shape[0]}
    _, size, _ = graph.input_shape
    answers = classes(graph)
    usual = network(graph.name)
    block: dict[str, Any] = {"name": graph.name}
    if graph.input_shape != usual.input_shape:
        block["image_size"] = size
    if answers != classes(usual):
        block["num_classes"] = answers[0]
    return block


def _cluster(scenario: Scenario) -> dict[str, Any]:
    cluster = scenario.job.cluster
    known = load_catalog(scenario.catalog)
    block: dict[str, Any] = {}
    if scenario.catalog:
        block["catalog"] = [str(path) for path in scenario.catalog]
    if cluster.placement is not None:
        block["placement"] = list(cluster.placement)
    if cluster.failed:
        block["failed"] = list(cluster.failed)
    if cluster.groups:
        groups = {
            group.name: _nodes(known, group.system, group.num_nodes) for group in cluster.groups
        }
        return {"groups": groups, **block}
    block |= _nodes(known, cluster.system, cluster.num_nodes)
    return {key: block[key] for key in _CLUSTER_KEYS if key in block}


def _nodes(known: Catalog, system: System, number: int) -> dict[str, Any]:
    """So many nodes of a system: its id, and what differs from the catalog's, in blocks."""
    base = known.system(system.id)
    block: dict[str, Any] = {"system": system.id, "nodes": number}
    if system.device != base.device:
        block["device"] = system.device.id
    if system.devices_per_node != base.devices_per_node:
        block["devices_per_node"] = system.devices_per_node
    if system.intra != base.intra:
        block["intra"] = changed_fields(base.intra, system.intra)
    if system.network is not None and base.network is not None:
        changes = changed_fields(base.network, system.network)
        if "devices_per_node" in block:  # else the interfaces of unused devices drop out
            changes["nics_per_node"] = system.network.nics_per_node
        if changes:
            block["network"] = changes
    return block


_COUNTED = ("recompute_layers", "offload_layers")
"""Numbers of each stage's layers, which most plans do not have."""


def _plan(plan: Plan) -> dict[str, Any]:
    """The plan's choices; what follows from them is a comment, so that one of them can change."""
    from ruamel.yaml.comments import CommentedMap

    values = values_of(plan)
    values["bucket_size"] = values.pop("bucket_bytes")
    values["recompute"] = plan.recompute.name.lower()
    values["cp_comm_type"] = str(plan.cp_comm_type) if plan.cp_comm_type else None
    values["strategy"] = None if plan.strategy == DDP else plan.strategy.to_json()
    values["stages"] = plan.stages and [stage.to_json() for stage in plan.stages]
    for name in (*_COUNTED, "recompute_modules", "offload_modules", "sync_batch_norm"):
        if not values[name]:
            del values[name]
    del values["actions"]
    if plan.from_file:
        values["schedule"] = str(Path(plan.schedule).resolve())
    left_out = {"precision", *_following(plan)}  # precision stands in the training block
    block = CommentedMap(
        (key, value) for key, value in values.items() if value is not None and key not in left_out
    )
    block.yaml_set_start_comment(
        f"dp: {plan.dp} and num_microbatches: {plan.num_microbatches} follow from the devices and "
        f"the batch",
        indent=2,
    )
    return block


def _following(plan: Plan) -> Iterator[str]:
    """Fields that the reader finds by itself (`plan.py`)."""
    yield from ("num_microbatches", "dp_replicate")
    if plan.dp_shard == (plan.dp if plan.zero_stage else 1):
        yield "dp_shard"
    if plan.from_file:
        yield from ("pp", "v")
    if plan.v == 1 or plan.schedule in V_SHAPED:
        yield "v"


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
