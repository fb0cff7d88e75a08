"""Graphs: shapes, legal cuts, what crosses them, what is kept once, and what a file may say."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from parsim.cluster.hardware import Cluster
from parsim.cluster.reader import load_catalog
from parsim.cost.job import Job
from parsim.cost.software import software
from parsim.errors import ModelError
from parsim.model.graph.build import build_graph, first_kept
from parsim.model.graph.catalog import network
from parsim.model.graph.document import graph_of, graph_text, read_graph
from parsim.model.graph.images import Conv2d, MaxPool2d
from parsim.model.graph.operation import Operation, OperationContext, Shape
from parsim.model.graph.pointwise import Add, Relu
from parsim.model.graph.record import INPUT, Graph
from parsim.model.graph.sequences import SelfAttention
from parsim.model.graph.sketch import Sketch
from parsim.model.graph.texts import Dense
from parsim.model.operators import Attention, Elementwise
from parsim.plan import Plan
from parsim.sim import simulate


def fork() -> Graph:
    """A convolution whose output goes two ways and is added up again."""
    draw = Sketch("fork", (4, 8, 8))
    x = draw.relu(draw.conv(INPUT, "first", 4, 3, padding=1), "act")
    y = draw.conv(x, "left", 4, 3, padding=1)
    draw.relu(draw.add("join", y, x), "last")
    return draw.graph()


def test_cuts_are_legal_where_one_tensor_crosses() -> None:
    graph = fork()
    assert [[node.name for node in layer] for layer in graph.layers] == [
        ["first"],
        ["act"],
        ["left", "join"],
        ["last"],
    ]
    assert graph.crossing() == (("first",), ("act",), ("join",), ("last",))


def test_named_ends_let_all_live_tensors_cross() -> None:
    draw = Sketch("skip", (4, 8, 8))
    x = draw.conv(INPUT, "first", 4, 3, padding=1)
    y = draw.end_layer(draw.conv(x, "second", 2, 3, padding=1))
    draw.concat("join", y, x)
    model = build_graph(draw.graph())
    assert [layer.outputs for layer in model.layers] == [(2 + 4) * 64, 6 * 64]


def test_gradients_of_a_fork_are_added_up() -> None:
    model = build_graph(fork())
    extra = [
        op
        for layer in model.layers
        for op in layer.operators
        if isinstance(op, Elementwise) and op.name == "accumulate"
    ]
    assert [(op.width, op.forward, op.backward) for op in extra] == [(256, 0, 3)]


def looks_at(tokens: int, width: int) -> Graph:
    """Queries of 16 tokens that look at another text."""
    draw = Sketch("cross", (16, 64))
    queries = draw.node(Dense(out_features=64), "queries", INPUT)
    pooled = draw.node(Rows(tokens=tokens, width=width), "pairs", INPUT)
    draw.node(SelfAttention(heads=4), "attention", queries, pooled)
    return draw.graph()


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows(Operation):
    """Another text of so many tokens."""

    tokens: int
    width: int

    def shape(self, inputs: tuple[Shape, ...]) -> Shape:
        return self.tokens, self.width


def test_attention_to_another_text_has_as_many_keys_as_that_has_tokens() -> None:
    core = [
        op
        for layer in build_graph(looks_at(1024, 128)).layers
        for op in layer.operators
        if isinstance(op, Attention)
    ]
    assert [(op.tokens, op.key_tokens) for op in core] == [(16, 1024)]
    assert core[0].flops(2) == 2 * (2 * 16 * 1024) * 4 * (16 + 16)


def test_attention_by_head_is_that_of_rows() -> None:
    """Queries, keys and values of each head, as torch's function takes them."""
    attention = SelfAttention(heads=4, causal=True)
    queries, keys = (4, 16, 8), (4, 24, 8)
    assert attention.shape((queries, keys, keys)) == queries
    at = OperationContext(inputs=(queries, keys, keys), output=queries, kept=0)
    (core,) = attention.operators(at)
    assert isinstance(core, Attention)
    assert (core.tokens, core.key_tokens, core.heads, core.head_dim) == (16, 24, 4, 8)
    for wrong in ((4, 24, 16), (2, 24, 8), (24, 32)):
        with pytest.raises(ModelError, match="takes queries, keys and values"):
            attention.shape((queries, wrong, wrong))
    with pytest.raises(ModelError, match="one to three inputs"):
        attention.shape((queries,) * 4)


def test_attention_to_another_text_costs_what_its_keys_do() -> None:
    def step(tokens: int) -> tuple[float, float]:
        job = Job(
            model=build_graph(looks_at(tokens, 128)),
            cluster=Cluster(system=load_catalog().system("dgx-a100"), num_nodes=1),
            software=software("pytorch-ddp"),
        )
        prediction = simulate(job, Plan(dp_replicate=8, microbatch_size=512, precision="fp32"))
        return prediction.step_time, max(prediction.peak_allocated)

    few, many = step(16), step(4096)
    assert many[0] > 2.0 * few[0]
    assert many[1] > few[1]


def test_keys_and_values_are_as_wide_as_queries() -> None:
    with pytest.raises(ModelError, match=r"rows of width 128, got \(1024, 64\)"):
        build_graph(looks_at(1024, 64))


def test_a_tensor_is_kept_once() -> None:
    kept = first_kept(fork())
    # the relu keeps its output, which the convolution behind it would keep as its input
    assert kept == {"first": 256, "act": 256, "left": 0, "join": 0, "last": 256}


def test_pooling_rounds_as_it_is_told() -> None:
    pool = MaxPool2d(kernel_size=(3, 3), stride=(2, 2))
    assert pool.shape(((8, 12, 12),)) == (8, 5, 5)
    up = MaxPool2d(kernel_size=(3, 3), stride=(2, 2), ceil_mode=True)
    assert up.shape(((8, 12, 12),)) == (8, 6, 6)


def test_groups_must_divide_channels() -> None:
    with pytest.raises(ModelError, match="groups=3"):
        Conv2d(out_channels=6, kernel_size=(1, 1), groups=3).shape(((4, 8, 8),))


def test_sums_need_one_shape() -> None:
    with pytest.raises(ModelError, match="4x8x8, 2x8x8"):
        Add().shape(((4, 8, 8), (2, 8, 8)))


@pytest.mark.parametrize("name", ["resnet18", "alexnet", "se-resnext101-32x4d"])
def test_a_written_graph_reads_as_itself(name: str, tmp_path: Path) -> None:
    graph = network(name)
    file = tmp_path / "mine.yaml"
    file.write_text(graph_text(graph), encoding="utf-8")
    again = read_graph(file)
    assert (again.nodes, again.ends, again.input_shape) == (
        graph.nodes,
        graph.ends,
        graph.input_shape,
    )
    assert again.path == str(file)


def test_yaml_by_hand(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(
        "name: small\ninput_shape: [3, 8, 8]\nnodes:\n"
        "- {name: a, op: conv2d, from: input, out_channels: 4, kernel_size: 3, bias: true}\n"
        "- {name: b, op: relu, from: [a]}\n",
        encoding="utf-8",
    )
    graph = read_graph(file)
    assert graph.output_shape == (4, 6, 6)
    assert isinstance(graph.nodes[1].operation, Relu)
    assert build_graph(graph).parameters == 3 * 4 * 9 + 4


WRONG = {
    "op 'conv3d' is unknown": {"name": "a", "op": "conv3d", "from": ["input"]},
    "conv2d needs out_channels": {
        "name": "a",
        "op": "conv2d",
        "from": ["input"],
        "kernel_size": [3, 3],
    },
    "relu has no 'slop' (did you mean 'slope'?)": {
        "name": "a",
        "op": "relu",
        "from": ["input"],
        "slop": 1,
    },
    "takes 'inputs', which is not before it": {"name": "a", "op": "relu", "from": ["inputs"]},
    "takes 1 input, got 2": {"name": "a", "op": "relu", "from": ["input", "input"]},
    "stride=two must be a list of sizes": {
        "name": "a",
        "op": "conv2d",
        "from": ["input"],
        "out_channels": 4,
        "kernel_size": [3, 3],
        "stride": "two",
    },
    "stride=0 must be a whole number from 1 to": {
        "name": "a",
        "op": "conv2d",
        "from": ["input"],
        "out_channels": 4,
        "kernel_size": [3, 3],
        "stride": [0, 2],
    },
}


@pytest.mark.parametrize("message", WRONG)
def test_wrong_nodes_are_told(message: str) -> None:
    with pytest.raises(ModelError) as told:
        graph_of({"name": "g", "input_shape": [3, 8, 8], "nodes": [WRONG[message]]})
    assert message in str(told.value)


@pytest.mark.parametrize(
    ("further", "message"),
    [
        (["mask"], "further_inputs must be a mapping of names to sizes"),
        ({"mask": []}, "further_inputs.mask=[] must be a list of sizes"),
        ({"input": [8]}, "'input' is the first input; name the further ones"),
        ({"act": [8]}, "node 'act' is there twice"),
    ],
)
def test_wrong_further_inputs_are_told(further: object, message: str) -> None:
    nodes = [{"name": "act", "op": "relu", "from": "input"}]
    with pytest.raises(ModelError) as told:
        graph_of({"name": "g", "input_shape": [8], "further_inputs": further, "nodes": nodes})
    assert message in str(told.value)


def test_a_mask_crosses_no_cut_but_what_a_table_makes_does() -> None:
    """Both inputs are read behind the first layer; the second text's embedding crosses alone."""
    linear = {"op": "linear", "out_features": 4}
    nodes = [
        {"name": "half", "op": "gelu", "from": "mask"},
        {"name": "first", **linear, "from": "input"},
        {"name": "second", **linear, "from": "other"},
        {"name": "sum", "op": "add", "from": ["first", "second"]},
        {"name": "last", "op": "multiply", "from": ["sum", "half"]},
    ]
    further = {"mask": [4], "other": [4]}
    graph = graph_of({"name": "g", "input_shape": [4], "further_inputs": further, "nodes": nodes})
    assert graph.beside() == {"mask", "other", "half"}
    assert [layer[-1].name for layer in graph.layers] == ["first", "sum", "last"]
    assert graph.crossing() == (("first",), ("sum",), ("last",))
