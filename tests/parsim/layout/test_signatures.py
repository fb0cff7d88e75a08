"""Signatures of operations: their parts fit, and their parameters are those of the model."""

from __future__ import annotations

from itertools import pairwise

import pytest

from parsim.layout.candidates import Options, inputs_on, output_on
from parsim.layout.mesh import B, Mesh, P, S
from parsim.layout.parameters import counted, parameters
from parsim.layout.signatures import MAKERS, signatures
from parsim.model.graph import pointwise
from parsim.model.graph.catalog import network
from parsim.model.graph.operations import OPERATIONS
from parsim.model.graph.record import Graph
from parsim.model.graph.texts import Dense

NETWORKS = ["alexnet", "resnet50", "inception-v3", "t5-small", "gnmt-8", "vit-b-16", "u-net-2-8"]


def graph_of(name: str) -> Graph:
    return network(name)


def test_every_operation_has_signatures() -> None:
    assert set(MAKERS) == set(OPERATIONS.values())


def test_products_have_those_of_the_paper() -> None:
    """Y = X W: five ways on one axis, and rows of a text."""
    ways = signatures(Dense(out_features=4), ((6,),), (4,))
    assert {(s.inputs[0], s.weight, s.output) for s in ways} == {
        (S(0), B, S(0)),
        (B, S(1), S(1)),
        (S(1), S(0), P),
        (P, B, P),
        (B, B, B),
    }


def test_no_function_of_values_takes_summands() -> None:
    for operation in (pointwise.Relu(), pointwise.Dropout(), pointwise.Pointwise(function="tanh")):
        ways = signatures(operation, ((4, 2, 2),), (4, 2, 2))
        assert all(P not in way.inputs for way in ways)


@pytest.mark.parametrize("name", NETWORKS)
def test_parts_of_operations_make_parts_of_outputs(name: str) -> None:
    """Whatever fits is checked by the shape that the operation itself makes of its parts."""
    graph = graph_of(name)
    options = Options(graph, Mesh((("a", 2), ("b", 2))))
    for node in graph.nodes:
        ways = options.of(node)
        assert ways, node.name
        words = {signature.word for way in ways for signature in way}
        assert "whole" in words
        assert all(len(inputs_on(way, 0)) == len(output_on(way)) == 2 for way in ways)


@pytest.mark.parametrize("name", NETWORKS)
def test_parameters_are_all_of_the_model(name: str) -> None:
    graph = graph_of(name)
    for node in graph.nodes:
        shapes = tuple(graph.shapes[source] for source in node.inputs)
        output = graph.shapes[node.name]
        listed = sum(part.values for part in parameters(node.operation, shapes, output))
        assert listed == counted(node.operation, shapes, output), node.name


def test_heads_go_together_with_their_products() -> None:
    graph = graph_of("t5-small")
    options = Options(graph, Mesh((("a", 2),)))
    for before, node in pairwise(graph.nodes):
        if node.name == "encoder.0.attention":
            assert options.joined[before.name] == 3
            assert "heads" in {way[0].word for way in options.of(node)}
