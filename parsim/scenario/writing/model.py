"""The model block of a written scenario: a name and what differs from it, or every field."""

from __future__ import annotations

from typing import Any

from parsim.model.graph.record import Graph
from parsim.model.reader import load_model_catalog
from parsim.scenario.record import Scenario
from parsim.scenario.writing.values import changed_fields, values_of


def model_block(scenario: Scenario) -> dict[str, Any]:
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
