"""PipeDream's profiles of layers, read into the same graph as every other model."""

from __future__ import annotations

from pathlib import Path

import pytest

from parsim.errors import ModelError
from parsim.model.graph.build import build_graph
from parsim.model.graph.document import read_graph
from parsim.model.graph.pipedream import is_profile, read_profile
from parsim.model.operators import Timed

ALEXNET = Path(__file__).parent / "profiles" / "alexnet.graph.txt"

LINE = "node{0} -- Conv2d(3, 4) -- forward_compute_time=1.0, backward_compute_time=2.0, "
LINE += "activation_size={1}, parameter_size=8.000\n"


def test_alexnet_of_pipedream() -> None:
    """Input and its 635 ms of loading take no part: 85.321 ms a mini-batch, 61.1 M parameters."""
    model = build_graph(read_graph(ALEXNET))
    operators = [op for layer in model.layers for op in layer.operators if isinstance(op, Timed)]
    seconds = sum(op.forward + op.backward for op in operators)
    assert seconds == pytest.approx(0.085321, rel=1e-5)
    assert model.parameters == 61_100_840
    assert (len(operators), model.num_layers) == (22, 21)


def test_lists_of_sizes_are_added_up_and_edges_join() -> None:
    text = LINE.format(1, "[4.0; 8.0; 4.0]") + LINE.format(2, "8.000") + LINE.format(3, "8.000")
    graph = read_profile("g.graph.txt", text + "\tnode1 -- node2\n\tnode1 -- node3\n", "")
    assert is_profile(text)
    assert graph.name == "g"
    assert [node.inputs for node in graph.nodes] == [("input",), ("node1",), ("node1",)]
    assert graph.shapes["node1"] == (4,)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (LINE.format(1, "1.0") + "\tnode1 -- node9\n", "edge node1 -- node9 names no node"),
        (LINE.format(1, "1.0") + "hello\n", "line 2 is neither a node nor an edge: 'hello'"),
        (
            LINE.format(1, "1.0") + LINE.format(2, "1.0") + "\tnode1 -- node2\n\tnode2 -- node1\n",
            "the edges around node1 go in a circle",
        ),
        (LINE.format(1, "1.0") * 2, "line 2: node node1 stands there twice"),
        (
            "".join(LINE.format(number, "1.0") for number in range(1, 5))
            + "\tnode1 -- node2\n\tnode3 -- node4\n",
            "node node3 does not hang together with node1; allowed: a graph in one piece",
        ),
        ("node1 -- Conv -- forward_compute_time=1\n", "line 1: 'backward_compute_time' is missing"),
        (LINE.format(1, "1e999"), "=inf is not between 0 and 1e+15"),
        (LINE.format(1, "-1"), "=-1 is not between 0 and 1e+15"),
    ],
)
def test_wrong_profiles(text: str, message: str) -> None:
    with pytest.raises(ModelError) as told:
        read_profile("g.txt", text, "")
    assert message in str(told.value)
