"""Values as a scenario file writes them: units on, tuples as lists, defaults left out."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from parsim.cluster.background import Background, Stream
from parsim.cluster.hardware import IntraNode, Network
from parsim.model.transformer import TransformerSpec
from parsim.plan import Plan
from parsim.units import DAY, HOUR, MINUTE, parse_quantity

_DIMENSIONS = {
    "bandwidth": "bandwidth",
    "nic_bandwidth": "bandwidth",
    "c2c_bandwidth": "bandwidth",
    "storage_bandwidth": "bandwidth",
    "rate": "bandwidth",
    "latency": "time",
    "hiccup_length": "time",
    "device_mtbf": "span",
    "job_mtbf": "span",
    "restart_time": "span",
    "checkpoint_stall": "span",
    "checkpoint_interval": "span",
    "bucket_bytes": "bytes",
    "size": "bytes",
}
_UNITS = {
    "bandwidth": {"GB/s": 1e9, "B/s": 1.0},
    "bytes": {"MB": 1e6, "B": 1.0},
    "time": {"us": 1e-6, "s": 1.0},
    "span": {"d": DAY, "h": HOUR, "min": MINUTE, "s": 1.0},
}
Record = TransformerSpec | IntraNode | Network | Plan


def stated_fields(record: Stream | Background, *names: str) -> dict[str, Any]:
    """The fields that are not None."""
    values = {name: written_value(name, getattr(record, name)) for name in names}
    return {name: value for name, value in values.items() if value is not None}


def changed_fields(base: Record, record: Record) -> dict[str, Any]:
    """Fields of a record that differ from the base's, as they are written."""
    then, now = values_of(base), values_of(record)
    return {key: now[key] for key in now if now[key] != then[key]}


def values_of(record: Record) -> dict[str, Any]:
    """Fields as they are written in a scenario file: units on, tuples as lists."""
    return {
        field.name: written_value(field.name, getattr(record, field.name))
        for field in fields(record)
    }


def written_value(name: str, value: object) -> object:
    """One field as it is written: with a unit where it has a dimension."""
    if name in _DIMENSIONS and isinstance(value, float | int):
        return quantity_text(float(value), _DIMENSIONS[name])
    return on_one_line(value) if isinstance(value, tuple) else value


def on_one_line(values: tuple[object, ...]) -> list[object]:
    """A list on one line: [7, 8, 8, 7]."""
    from ruamel.yaml.comments import CommentedSeq

    row = CommentedSeq(values)
    row.fa.set_flow_style()
    return row


def quantity_text(value: float, dimension: str) -> str:
    """The shortest text that reads as exactly this value."""
    for unit, factor in _UNITS[dimension].items():
        text = f"{value / factor:g}{unit}"
        if parse_quantity(text, dimension) == value:
            return text
    return f"{value!r}{unit}"
