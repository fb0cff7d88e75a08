"""Networks as torch modules: the parameters and shapes that the simulator counts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from executor.model.graph.modules import check_cut, without_dropout  # noqa: E402
from executor.model.graph.tokens import Additive, buckets  # noqa: E402
from executor.model.loss import cross_entropy  # noqa: E402
from executor.model.module import build_model, build_stage  # noqa: E402
from parsim.errors import ModelError, PlanError  # noqa: E402
from parsim.model.graph.build import build_graph  # noqa: E402
from parsim.model.graph.catalog import NETWORKS, network, reads_text  # noqa: E402
from parsim.model.graph.families.translation import (  # noqa: E402
    TRANSLATORS,
    Translator,
    translator,
)
from parsim.model.graph.record import Graph, Node  # noqa: E402
from parsim.model.graph.texts import Measured  # noqa: E402

SIZED = ("u-net-2-4", "amoebanet-d-3-16", "multi-task-3-8")


def kept_values(graph: Graph, **arguments: int) -> int:
    stage = build_stage(graph, embedding=True, head=True, device="meta", **arguments)  # type: ignore[arg-type]
    return sum(parameter.numel() for parameter in stage.parameters())


@pytest.mark.parametrize("name", [*NETWORKS, *SIZED])
def test_a_twin_has_the_parameters_of_its_model(name: str) -> None:
    graph = network(name)
    model = build_graph(graph)
    assert kept_values(graph, first_layer=0, num_layers=model.num_layers) == model.parameters


@pytest.mark.parametrize(
    "name",
    [
        *("alexnet", "resnet18", "se-resnext101-32x4d", "inception-v3", "vit-b-16", *SIZED),
        *("alexnet-2012", "alexnet-tf", "resnet50-v1"),
        *("alexnet-bvlc", "overfeat-fast", "vgg19", "resnet200-v2", "densenet161", "googlenet"),
        *("gnmt-8", "t5-small", "transformer-big"),
    ],
)
def test_every_tensor_has_the_shape_of_the_record(name: str) -> None:
    # cells run token by token: of a text of two tokens
    graph = network(name, 2 if reads_text(name) else None)
    twin = build_stage(
        graph, first_layer=0, num_layers=len(graph.layers), embedding=True, head=True, device="meta"
    )
    kind = torch.int64 if reads_text(name) else torch.float32
    tensors = (torch.empty(2, *graph.input_shape, device="meta", dtype=kind),)
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


@pytest.mark.parametrize(
    ("name", "size"),
    [("resnet18", 32), ("amoebanet-d-3-16", 64), ("vit-b-16", 32)],
)
def test_a_network_learns_a_batch(name: str, size: int) -> None:
    """Its loss on one batch falls with steps of plain SGD, and every parameter has a gradient."""
    model = build_model(network(name, size, 10), seed=3)
    draw = torch.Generator().manual_seed(1)
    inputs = torch.randn(4, 3, size, size, generator=draw)
    targets = torch.randint(0, 10, (4, 1), generator=draw)
    optimizer, losses = torch.optim.SGD(model.parameters(), lr=0.02), []
    for _ in range(4):
        optimizer.zero_grad()
        value = cross_entropy(model(inputs), targets)
        value.backward()
        optimizer.step()
        losses.append(float(value.detach()))
    assert all(p.grad is not None for p in model.parameters())
    assert losses[-1] < losses[0]


@pytest.mark.parametrize("places", [0, 8])
def test_what_reads_tokens_learns_with_one_table(
    places: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Encoder, decoder and logits use one table; its gradient is the sum of all three uses."""
    sizes = Translator(layers=2, width=16, heads=2, head_dim=8, inner=24, words=40, buckets=places)
    monkeypatch.setitem(TRANSLATORS, "tiny", sizes)
    graph = translator("tiny", 12)
    model = build_model(graph, seed=3)
    assert sum(p.numel() for p in model.parameters()) == build_graph(graph).parameters
    tables = [name for name, p in model.named_parameters() if p.shape == (40, 16)]
    assert tables == ["layers.0.made.source.token.weight"]
    ids = torch.randint(0, 40, (3, 13), generator=torch.Generator().manual_seed(1))
    logits = model(ids[:, :-1])
    assert logits.shape == (3, 12, 40)
    cross_entropy(logits, ids[:, 1:]).backward()
    assert all(p.grad is not None and float(p.grad.abs().sum()) > 0 for p in model.parameters())
    count = len(graph.layers)
    with pytest.raises(PlanError, match="nodes 'target' and 'source' of tiny share a table"):
        check_cut(graph, (1, count - 1))


def test_buckets_of_relative_places() -> None:
    """Four of eight each way (T5): 0 and 1 alone, wider ones up to the farthest; none ahead."""
    apart = torch.tensor([-200, -20, -2, -1, 0, 1, 2, 20, 200])
    assert buckets(apart, 8, causal=False).tolist() == [3, 3, 2, 1, 0, 5, 6, 7, 7]
    assert buckets(apart, 8, causal=True).tolist() == [7, 5, 2, 1, 0, 0, 0, 0, 0]


def test_additive_attention_by_hand() -> None:
    """Equal keys share the values; a key that answers the query has nearly all."""
    attention = Additive(1)
    values = torch.tensor([[[1.0], [3.0]]])
    same = attention(torch.zeros(1, 1, 1), torch.zeros(1, 2, 1), values)
    assert same.tolist() == [[[2.0]]]
    attention.v.data.fill_(50.0)
    far = attention(torch.zeros(1, 1, 1), torch.tensor([[[-5.0], [5.0]]]), values)
    assert float(far.detach()) == pytest.approx(3.0)


def test_dropout_is_taken_out() -> None:
    graph = without_dropout(network("alexnet"))
    rates = [getattr(node.operation, "p", None) for node in graph.nodes if "drop" in node.name]
    assert rates == [0.0, 0.0]
    assert replace(graph, nodes=network("alexnet").nodes) == network("alexnet")


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_images_are_taken_in_the_dtype_of_the_parameters(dtype: Any) -> None:
    model = build_model(network("resnet18", 32, 10), dtype=dtype, seed=3)
    logits = model(torch.randn(2, 3, 32, 32))
    assert logits.dtype == dtype
    logits.square().mean().backward()
    assert all(p.grad is not None for p in model.parameters())
