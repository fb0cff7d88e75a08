"""Networks as torch modules: the parameters and shapes that the simulator counts."""

from __future__ import annotations

from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")

from executor.model.graph import check_cut, without_dropout  # noqa: E402
from executor.model.module import build_model, build_stage  # noqa: E402
from parsim.errors import ModelError, PlanError  # noqa: E402
from parsim.model.graph.build import build_graph  # noqa: E402
from parsim.model.graph.catalog import NETWORKS, network, reads_text  # noqa: E402
from parsim.model.graph.record import Graph, Node  # noqa: E402
from parsim.model.graph.texts import Measured  # noqa: E402

SIZED = ("u-net-2-4", "amoebanet-d-3-16")


def held(graph: Graph, **place: int) -> int:
    stage = build_stage(graph, embedding=True, head=True, device="meta", **place)  # type: ignore[arg-type]
    return sum(parameter.numel() for parameter in stage.parameters())


IMAGES = [name for name in NETWORKS if not reads_text(name)]


@pytest.mark.parametrize("name", [*IMAGES, *SIZED])
def test_a_twin_has_the_parameters_of_its_model(name: str) -> None:
    graph = network(name)
    model = build_graph(graph)
    assert held(graph, first_layer=0, num_layers=model.num_layers) == model.parameters


@pytest.mark.parametrize(
    "name", ["alexnet", "resnet18", "se-resnext101-32x4d", "inception-v3", "vit-b-16", *SIZED]
)
def test_every_tensor_has_the_shape_of_the_record(name: str) -> None:
    graph = network(name)
    twin = build_stage(
        graph, first_layer=0, num_layers=len(graph.layers), embedding=True, head=True, device="meta"
    )
    tensors = (torch.empty(2, *graph.input_shape, device="meta"),)
    for layer, names in zip(twin.layers.values(), graph.crossing(), strict=True):
        tensors = layer(*tensors)
        shapes = [tuple(tensor.shape[1:]) for tensor in tensors]
        if names[-1] == "loss":
            break
        assert shapes == [graph.shapes[name] for name in names]
    assert len(tensors) == 1


def test_stages_of_a_cut_hold_the_whole_and_compute_it() -> None:
    graph = network("resnet18", 32, 10)
    whole = build_model(graph, seed=3).eval()
    parts = [
        build_stage(graph, first_layer=f, num_layers=n, embedding=False, head=False, seed=3).eval()
        for f, n in ((0, 4), (4, 6))
    ]
    names = {name for part in parts for name, _ in part.named_parameters()}
    assert names == {name for name, _ in whole.named_parameters()}
    x = torch.randn(4, 3, 32, 32)
    assert torch.equal(parts[1](parts[0](x)), whole(x))


def test_a_cut_through_a_branch_is_refused() -> None:
    graph = network("u-net-2-4")
    check_cut(graph, (len(graph.layers),))
    with pytest.raises(PlanError, match=r"2 tensors \(.*\) cross the cut behind layer 3"):
        check_cut(graph, (4, len(graph.layers) - 4))


def test_what_is_only_timed_cannot_be_run() -> None:
    timed = Measured(output=(4,), forward_s=1.0, backward_s=1.0)
    nodes = (Node(name="a", operation=timed, inputs=("input",)),)
    graph = Graph(name="timed", input_shape=(4,), nodes=nodes)
    with pytest.raises(ModelError, match="node 'a' is measured, which can be simulated but"):
        build_model(graph)


def test_what_reads_tokens_cannot_be_run_yet() -> None:
    with pytest.raises(ModelError, match="gnmt-8: node 'source' reads tokens"):
        build_model(network("gnmt-8"))


def test_dropout_is_taken_out() -> None:
    graph = without_dropout(network("alexnet"))
    rates = [getattr(node.operation, "p", None) for node in graph.nodes if "drop" in node.name]
    assert rates == [0.0, 0.0]
    assert replace(graph, nodes=network("alexnet").nodes) == network("alexnet")
