"""A scenario with one plan, back to the YAML that reads as the same records."""

from __future__ import annotations

from dataclasses import fields
from io import StringIO
from pathlib import Path
from typing import Any

from parsim.cluster.background import Background
from parsim.cluster.hardware import IntraNode, Network, System
from parsim.cluster.reader import Catalog, load_catalog
from parsim.cost.jitter import Jitter
from parsim.model.reader import load_model_catalog
from parsim.model.transformer import TransformerSpec
from parsim.plan import Plan
from parsim.scenario.record import Scenario
from parsim.units import parse_quantity

_DIMENSIONS = {
    "bandwidth": ("bandwidth", "B/s"),
    "nic_bandwidth": ("bandwidth", "B/s"),
    "c2c_bandwidth": ("bandwidth", "B/s"),
    "latency": ("time", "s"),
    "bucket_bytes": ("bytes", "B"),
}
_PREFIXES = {
    "bandwidth": {"G": 1e9, "": 1.0},
    "bytes": {"M": 1e6, "": 1.0},
    "time": {"u": 1e-6, "": 1.0},
}


def scenario_text(scenario: Scenario, plan: Plan) -> str:
    """The YAML of the scenario with `plan` as its plan block.

    Reading it gives an equal model, cluster, software and plan. A space of plans is left out: the
    file is about one plan. A schedule of the user's own is named by its absolute path.
    """
    from ruamel.yaml import YAML

    document = {
        "description": scenario.description,
        "model": _model(scenario),
        "cluster": _cluster(scenario),
        "software": scenario.job.software.id,
        "training": {
            "global_batch_size": plan.global_batch_size,
            "precision": plan.precision,
        },
        "plan": _plan(plan),
        **_jitter(scenario.jitter),
        **_background(scenario.background),
    }
    yaml, text = YAML(), StringIO()
    yaml.width = 100
    yaml.default_flow_style = False
    yaml.dump(document, text)
    return text.getvalue()


def _model(scenario: Scenario) -> dict[str, Any]:
    """The catalog's name and what differs, or else every field."""
    spec, known = scenario.spec, load_model_catalog()
    if spec.name not in known:
        return {"family": "gpt2", **_values(spec)}
    changed = _changes(known[spec.name], spec)
    return {"name": spec.name, **changed, "fused_attention": spec.fused_attention}


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
        groups = {one.name: _nodes(known, one.system, one.num_nodes) for one in cluster.groups}
        return {"groups": groups, **block}
    own = _nodes(known, cluster.system, cluster.num_nodes)
    first = {name: own.pop(name) for name in ("system", "nodes")}
    device = {name: own.pop(name) for name in ("device",) if name in own}
    catalog = {name: block.pop(name) for name in ("catalog",) if name in block}
    return {**first, **catalog, **device, **block, **own}


def _nodes(known: Catalog, system: System, number: int) -> dict[str, Any]:
    """So many nodes of a system: its id, and what differs from the catalog's."""
    base = known.system(system.id)
    block: dict[str, Any] = {"system": system.id, "nodes": number}
    if system.device != base.device:
        block["device"] = system.device.id
    return block | _links(base, system)


def _links(base: System, system: System) -> dict[str, Any]:
    """What differs from the catalog's system, each override in its own block."""
    block: dict[str, Any] = {}
    if system.devices_per_node != base.devices_per_node:
        block["devices_per_node"] = system.devices_per_node
    if system.intra != base.intra:
        block["intra"] = _changes(base.intra, system.intra)
    if system.network is not None and base.network is not None:
        changes = _changes(base.network, system.network)
        if "devices_per_node" in block:  # else the interfaces of unused devices drop out
            changes["nics_per_node"] = system.network.nics_per_node
        if changes:
            block["network"] = changes
    return block


def _plan(plan: Plan) -> dict[str, Any]:
    values = _values(plan)
    values["bucket_size"] = values.pop("bucket_bytes")
    values["recompute"] = plan.recompute.name.lower()
    del values["precision"]  # stands in the training block
    if not plan.recompute_modules:
        del values["recompute_modules"]
    if values.pop("actions") is not None:
        values["schedule"] = str(Path(plan.schedule).resolve())
    return {key: value for key, value in values.items() if value is not None}


def _background(background: Background) -> dict[str, Any]:
    """Storage and streams, where there are any."""
    streams: dict[str, Any] = {}
    for one in background.streams:
        block: dict[str, Any] = {"from": one.source, "to": one.target, "every": one.every}
        if one.size is not None:
            block["size"] = _quantity(one.size, "bytes", "B")
        if one.rate is not None:
            block["rate"] = _quantity(one.rate, "bandwidth", "B/s")
        streams[one.name] = block
    values: dict[str, Any] = {"streams": streams} if streams else {}
    if background.storage_bandwidth is not None:
        rate = _quantity(background.storage_bandwidth, "bandwidth", "B/s")
        values["storage_bandwidth"] = rate
    return {"background": values} if values else {}


def _jitter(jitter: Jitter) -> dict[str, Any]:
    """What the file stated; the rest has defaults."""
    values = {name: getattr(jitter, name) for name in sorted(jitter.stated)}
    if "slow_ranks" in values:
        values["slow_ranks"] = dict(jitter.slow_ranks)
    if "hiccup_length" in values:
        values["hiccup_length"] = _quantity(jitter.hiccup_length, "time", "s")
    return {"jitter": values} if values else {}


def _changes(
    base: TransformerSpec | IntraNode | Network, record: TransformerSpec | IntraNode | Network
) -> dict[str, Any]:
    then, now = _values(base), _values(record)
    return {key: now[key] for key in now if now[key] != then[key]}


def _values(record: TransformerSpec | IntraNode | Network | Plan) -> dict[str, Any]:
    """Fields as they are written in a scenario file: units on, tuples as lists."""
    return {
        field.name: _written(field.name, getattr(record, field.name)) for field in fields(record)
    }


def _written(name: str, value: object) -> object:
    if name in _DIMENSIONS and isinstance(value, float | int):
        return _quantity(float(value), *_DIMENSIONS[name])
    return _row(value) if isinstance(value, tuple) else value


def _row(values: tuple[object, ...]) -> list[object]:
    """A list on one line: [7, 8, 8, 7]."""
    from ruamel.yaml.comments import CommentedSeq

    row = CommentedSeq(values)
    row.fa.set_flow_style()
    return row


def _quantity(value: float, dimension: str, unit: str) -> str:
    """The shortest text that reads as exactly this value."""
    for prefix, factor in _PREFIXES[dimension].items():
        text = f"{value / factor:g}{prefix}{unit}"
        if parse_quantity(text, dimension) == value:
            return text
    return f"{value!r}{unit}"
