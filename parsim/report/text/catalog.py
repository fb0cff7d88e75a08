"""The catalog as rows: devices, systems, models, schedules, software."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from parsim.report.text.tables import table
from parsim.units import GIB

Row = dict[str, Any]


def catalog_rows(kind: str) -> list[Row]:
    """Rows of one kind; numbers in SI units with the unit in the name."""
    return _KINDS[kind]()


def catalog_view(kind: str, rows: list[Row]) -> RenderableType:
    """The rows of a kind in a table, or in two where one has no room for all fields."""
    parts = _PARTS.get(kind) or (tuple(rows[0]),)
    tables: list[RenderableType] = [_columns(rows, names) for names in parts]
    hidden = [name for name in rows[0] if name not in chain(*parts)]
    if hidden:
        words = f"--json has also {', '.join(hidden)}, and long lists in full"
        tables.append(Text(words, style="dim"))
    if kind == "models":
        tables.append(Text(_sized_words(), style="dim"))
    return Group(*[piece for part in tables for piece in (part, Text(""))][:-1])


def _sized_words() -> str:
    """Networks that are no rows, since their names end with sizes that anybody may choose."""
    from parsim.model.graph.catalog import SIZED_NAMES

    named = "; ".join(f"{name}, {what}" for name, what in SIZED_NAMES.items())
    return f"and networks of any two sizes, such as {named}"


def _columns(rows: list[Row], names: Sequence[str]) -> Table:
    """The fields of such names of all rows, as a table."""
    numeric = [i for i, name in enumerate(names) if _is_number(rows[0][name])]
    filled = table(" | ".join(HEADS.get(name, name) for name in names), right=numeric)
    for row in rows:
        filled.add_row(*(_cell(row[name]) for name in names))
    return filled


_PARTS: Mapping[str, Sequence[Sequence[str]]] = {
    "software": (
        ("id", "description"),
        ("id", "schedules", "zero_stages", "cp_comm_type", "kv_heads"),
    )
}
"""Fields of the tables of a kind, where they are several."""
HEADS: Mapping[str, str] = {
    "memory_gib": "memory GiB",
    "bandwidth_gb_per_s": "memory GB/s",
    "peak_tflops": "dense peak TFLOP/s",
    "devices_per_node": "devices a node",
    "link_gb_per_s": "link GB/s",
    "node_network_gb_per_s": "network GB/s a node",
}
"""What stands over the columns of fields whose names have units, in words that can be broken."""
LISTED = 4
"""Items of a list that a cell names; of a longer one it says how many."""


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, list):
        names = ", ".join(map(str, value)) or "none"
        return names if len(value) <= LISTED else f"{len(value)} of them"
    if isinstance(value, float):
        return _rate(value)
    return f"{value:,}" if isinstance(value, int) else str(value)


def _rate(value: float) -> str:
    """Four figures, and all digits before the point: 10,000 and never 1e+04."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _devices() -> list[Row]:
    from parsim.cluster.reader import load_catalog

    return [
        {
            "id": device.id,
            "memory_gib": device.memory / GIB,
            "bandwidth_gb_per_s": device.memory_bandwidth / 1e9,
            "peak_tflops": ", ".join(
                f"{k} {_rate(v / 1e12)}" for k, v in device.peak_flops.items()
            ),
            "name": device.name,
        }
        for device in load_catalog().devices.values()
    ]


def _systems() -> list[Row]:
    from parsim.cluster.reader import load_catalog

    return [
        {
            "id": system.id,
            "device": system.device.id,
            "devices_per_node": system.devices_per_node,
            "fabric": system.intra.fabric,
            "link_gb_per_s": system.intra.bandwidth / 1e9,
            "node_network_gb_per_s": system.network.node_bandwidth / 1e9 if system.network else 0.0,
            "name": system.name,
        }
        for system in load_catalog().systems.values()
    ]


def _models() -> list[Row]:
    """Transformers and networks of images, with their sizes."""
    from parsim.model.graph.build import build_graph
    from parsim.model.graph.catalog import NETWORKS, network
    from parsim.model.reader import load_model_catalog
    from parsim.model.transformer import build_transformer

    graphs = {name: build_graph(network(name)) for name in NETWORKS}
    transformers = [
        {
            "id": name,
            "parameters": build_transformer(spec).parameters,
            "layers": spec.num_layers,
            "hidden_size": spec.hidden_size,
            "heads": spec.num_attention_heads,
            "seq_len": spec.seq_len,
        }
        for name, spec in load_model_catalog().items()
    ]
    sizes = dict.fromkeys(("hidden_size", "heads", "seq_len"))
    return transformers + [
        {"id": name, "parameters": model.parameters, "layers": model.num_layers, **sizes}
        for name, model in graphs.items()
    ]


def _schedules() -> list[Row]:
    from parsim.schedule import CHUNKED, SCHEDULES, V_SHAPED
    from parsim.schedule.versions import RULES

    searched = {"auto": "The shortest order found for the plan's own stages within its memory."}
    chunks = dict.fromkeys(CHUNKED, "v >= 2") | dict.fromkeys(V_SHAPED, "v = 2")
    named = {
        name: _what_is_built((builder.__doc__ or "").strip().splitlines()[0])
        for name, builder in SCHEDULES.items()
    }
    return [
        {"id": name, "chunks": chunks.get(name, "v = 1"), "what": words}
        for name, words in {**named, **searched, **RULES}.items()
    ]


def _what_is_built(words: str) -> str:
    """A builder's first line without its verb: what a list of schedules is about."""
    built = re.sub(r"^Build (the )?", "", words)
    return built[:1].upper() + built[1:]


def _software() -> list[Row]:
    from parsim.cost.software import software_catalog

    return [
        {
            "id": name,
            "description": stack.description,
            "schedules": list(stack.schedules),
            "zero_stages": list(stack.zero_stages),
            "pipeline_zero_stages": list(stack.pipeline_zero_stages),
            "cp_comm_type": str(stack.cp_comm_type),
            "kv_heads": stack.kv_heads,
            "compile": stack.compile,
            "tp_overlap": stack.tp_overlap,
        }
        for name, stack in software_catalog().items()
    ]


_KINDS: dict[str, Callable[[], list[Row]]] = {
    "devices": _devices,
    "systems": _systems,
    "models": _models,
    "schedules": _schedules,
    "software": _software,
}
