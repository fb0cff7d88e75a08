"""A graph as a file that people can read: written by `parsim profile`, or by hand.

    kind: graph
    schema_version: 1
    name: small
    input_shape: [3, 32, 32]
    nodes:
    - {name: conv1, op: conv2d, from: [input], out_channels: 16, kernel_size: [3, 3]}
    - {name: fc, op: linear, from: [...], out_features: 10}

YAML 1.2; what is written is JSON, of which YAML 1.2 is a superset, and is read a hundred times as
fast. Fields of an operation that are left out have its defaults. `further_inputs: {mask: [16]}` are
what enters beside `input`, for `from` to name.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

from parsim.errors import ModelError, alternatives, shown
from parsim.files import MOST_TEXT, MOST_YAML, read_text
from parsim.model.graph.operation import Operation
from parsim.model.graph.operations import NAMES, OPERATIONS
from parsim.model.graph.pipedream import is_profile, read_profile
from parsim.model.graph.record import Graph, Node
from parsim.model.graph.traces.events import is_trace
from parsim.model.graph.traces.graph import read_trace
from parsim.model.graph.values import inputs_of, size_of, sizes_of, text_of, value_of

SCHEMA_VERSION = 1
KIND = "graph"
NEAR = (".yaml", ".json", ".gz", ".txt")
"""Suffixes of such files."""
PROFILED = "parameters"
"""The key of the parameters of the module that was profiled, which the nodes' may miss."""
_KEYS = {
    "kind",
    "schema_version",
    "name",
    "input_shape",
    "further_inputs",
    "device",
    "ends",
    "nodes",
    "notes",
    PROFILED,
}
_OWN = ("name", "op", "from")


def read_graph(path: Path) -> Graph:
    """Read a model file, PipeDream's profile (`graph.txt`), or a trace of torch's profiler.

    Raises:
        ModelError: it cannot be read, or what it says is no graph; the message names file and node.
    """
    text = read_text(path, most=MOST_TEXT, error=ModelError, near=NEAR)
    try:
        if is_profile(text):
            return read_profile(path.name, text, str(path))
        document = _readable(path, text)
        if is_trace(document):
            return read_trace(path.name, document, str(path)).graph
        return graph_of(document, str(path))
    except ModelError as reason:
        raise ModelError(f"{path}: {reason}") from None


def graph_of(document: object, path: str = "") -> Graph:
    """The graph that a document describes.

    Raises:
        ModelError: a key, a kind of operation or a value is wrong.
    """
    if not isinstance(document, dict):
        raise ModelError(f"must be a mapping with name, input_shape and nodes{_made()}")
    for key in document.keys() - _KEYS:
        raise ModelError(f"unknown key '{shown(key)}'{alternatives(str(key), sorted(_KEYS))}")
    if document.get("kind", KIND) != KIND:
        raise ModelError(f"kind={shown(document['kind'])} is no model; use kind: {KIND}{_made()}")
    if document.get("schema_version", SCHEMA_VERSION) != SCHEMA_VERSION:
        raise ModelError(f"schema_version must be {SCHEMA_VERSION}; write the file again")
    nodes, ends = document.get("nodes"), document.get("ends") or []
    if not isinstance(nodes, list) or not isinstance(ends, list):
        raise ModelError(f"nodes must be a list, and so must ends{_made()}")
    return Graph(
        name=text_of("name", document.get("name", "graph")),
        input_shape=sizes_of("input_shape", document.get("input_shape")),
        nodes=tuple(_node(number, node) for number, node in enumerate(nodes)),
        ends=tuple(map(str, ends)),
        device=text_of("device", document.get("device", "")),
        path=path,
        further_inputs=inputs_of(document.get("further_inputs") or {}),
        profiled_parameters=size_of(PROFILED, document.get(PROFILED, 0)),
    )


def graph_document(graph: Graph, notes: tuple[str, ...] = ()) -> dict[str, Any]:
    """What `graph_of` reads."""
    document: dict[str, Any] = {"kind": KIND, "schema_version": SCHEMA_VERSION, "name": graph.name}
    document["input_shape"] = list(graph.input_shape)
    if graph.further_inputs:
        document["further_inputs"] = {
            name: list(shape) for name, shape in graph.further_inputs.items()
        }
    if graph.device:
        document["device"] = graph.device
    if graph.profiled_parameters:
        document[PROFILED] = graph.profiled_parameters
    if graph.ends:
        document["ends"] = list(graph.ends)
    if notes:
        document["notes"] = list(notes)
    document["nodes"] = [_written(node) for node in graph.nodes]
    return document


def graph_text(graph: Graph, notes: tuple[str, ...] = ()) -> str:
    """The document as JSON with a node a line, which YAML reads too."""
    document = graph_document(graph, notes)
    nodes = document.pop("nodes")
    head = [f"  {json.dumps(key)}: {json.dumps(value)}," for key, value in document.items()]
    rows = ",\n".join(f"    {json.dumps(node)}" for node in nodes)
    return "\n".join(["{", *head, '  "nodes": [', rows, "  ]", "}", ""])


def _readable(path: Path, text: str) -> object:
    """What a text holds, as far as Python takes it: integers of up to 4,300 digits, real dates."""
    try:
        return _parsed(path, text)
    except (RecursionError, ValueError):
        raise ModelError(
            "is nested too deeply, or has a number or a date that cannot be read"
        ) from None


def _parsed(path: Path, text: str) -> object:
    if text.lstrip().startswith("{"):
        try:
            return json.loads(text)
        except json.JSONDecodeError as reason:
            raise ModelError(f"line {reason.lineno}: {reason.msg}") from None
    if len(text) > MOST_YAML:
        raise ModelError(f"{len(text):,} bytes of YAML are too slow to read; write it as JSON")
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        return YAML(typ="safe", pure=True).load(text)
    except YAMLError as reason:
        raise ModelError(str(reason).splitlines()[0]) from None


def _node(number: int, entry: object) -> Node:
    if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
        raise ModelError(f"nodes[{number}] must be a mapping with name, op and from")
    name, op, inputs = entry["name"], entry.get("op"), entry.get("from")
    if not isinstance(op, str) or op not in OPERATIONS:
        rest = alternatives(str(op), OPERATIONS)
        raise ModelError(f"node '{shown(name)}': op '{shown(op)}' is unknown{rest}")
    if isinstance(inputs, str):
        inputs = [inputs]
    if not isinstance(inputs, list) or not all(isinstance(source, str) for source in inputs):
        raise ModelError(f"node '{shown(name)}': from must be a list of names of nodes, or 'input'")
    given = {key: value for key, value in entry.items() if key not in _OWN}
    try:
        operation = _operation(op, OPERATIONS[op], given)
    except ModelError as reason:
        raise ModelError(f"node '{shown(name)}': {reason}") from None
    return Node(name=name, operation=operation, inputs=tuple(inputs))


def _operation(op: str, kind: type[Operation], given: Mapping[str, object]) -> Operation:
    known = {field.name: field for field in fields(kind)}
    for key in given.keys() - known.keys():
        raise ModelError(f"{op} has no '{shown(key)}'{alternatives(str(key), known)}")
    missing = [
        name for name, field in known.items() if field.default is MISSING and name not in given
    ]
    if missing:
        raise ModelError(f"{op} needs {', '.join(missing)}")
    values: dict[str, Any] = {name: value_of(known[name], value) for name, value in given.items()}
    return kind(**values)


def _written(node: Node) -> dict[str, Any]:
    """A node without what is at its default."""
    entry: dict[str, Any] = {"name": node.name, "op": NAMES[type(node.operation)]}
    entry["from"] = list(node.inputs)
    for field in fields(node.operation):
        value = getattr(node.operation, field.name)
        if value != field.default:
            entry[field.name] = list(value) if isinstance(value, tuple) else value
    return entry


def _made() -> str:
    return "; `parsim profile FILE.py:FUNCTION --input NxCxHxW` writes one"
