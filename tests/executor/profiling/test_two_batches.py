"""Profiles at two batch sizes: views are free, calls have a fixed part, memory counts once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from executor.profiling import seconds  # noqa: E402
from executor.profiling.__main__ import built, profiled  # noqa: E402
from executor.profiling.inputs import batch_of  # noqa: E402
from executor.profiling.seconds import Line, line, timed  # noqa: E402
from executor.profiling.stored import Stored  # noqa: E402
from parsim.model.graph.build import first_kept  # noqa: E402
from parsim.model.graph.document import graph_of  # noqa: E402
from parsim.model.graph.pointwise import View  # noqa: E402
from parsim.model.graph.record import Graph  # noqa: E402
from parsim.model.graph.sequences import SelfAttention  # noqa: E402
from parsim.model.graph.texts import Dense, Measured  # noqa: E402

CODE = '''
import torch
from torch import nn
from torch.nn import functional


class Encoder(nn.Module):
    """Two blocks whose attention puts the batch second; masks of dropout are priced apart."""

    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
        layer.dropout = layer.dropout1 = layer.dropout2 = nn.Identity()
        self.blocks = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(32, 5)

    def forward(self, x):
        return self.head(self.blocks(x).mean(1))


class Fixed(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(6, 8)

    def forward(self, x):
        return torch.cumsum(self.inner(x).view(4, 2, 4), 2).flatten(1)


class Computed(nn.Module):
    """A product with a weight that the input decides is none of a layer."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(6, 6)

    def forward(self, x):
        left, right = self.inner(x).chunk(2, dim=-1)
        return functional.linear(left, (right.sum(0, keepdim=True)).detach()[:, :3] + left[:1])


def encoder():
    return Encoder()


def fixed():
    return Fixed()


def computed():
    return Computed()
'''


def graph_from(code: Path, name: str, sizes: str, *, hooks: bool = False) -> tuple[Graph, str]:
    document = profiled(f"{code}:{name}", [sizes], hooks=hooks)
    return graph_of(json.loads(str(document["text"]))), str(document["notes"])


@pytest.fixture(scope="module")
def encoder(code: Path) -> tuple[Graph, str]:
    return graph_from(code, "encoder", "4x12x32")


def test_views_are_free(encoder: tuple[Graph, str]) -> None:
    graph, notes = encoder
    views = [node for node in graph.nodes if isinstance(node.operation, View)]
    assert len(views) > 30
    for word in (" view", "transpose", "permute", "select", "unflatten", "squeeze"):
        assert word not in notes
    kept = first_kept(graph)
    assert not any(kept[node.name] for node in views)


def test_a_projection_of_attention_is_a_linear(encoder: tuple[Graph, str]) -> None:
    graph, notes = encoder
    dense = [
        node.operation.out_features for node in graph.nodes if isinstance(node.operation, Dense)
    ]
    assert dense == [96, 32, 64, 32] * 2 + [5]
    assert "linear" not in notes


def test_what_is_kept_is_what_autograd_keeps(code: Path, encoder: tuple[Graph, str]) -> None:
    graph, _ = encoder
    model = built(f"{code}:encoder")
    batch = batch_of("encoder", ["4x12x32"], model)
    stored = Stored([*model.parameters(), *model.buffers()])
    with stored:
        result = batch.through(model)
    real = stored.values([""], batch.size)[""]
    assert isinstance(result, torch.Tensor)
    assert result.requires_grad
    kept = first_kept(graph)
    operations = [node.operation for node in graph.nodes]
    measured = [part.kept_values for part in operations if isinstance(part, Measured)]
    attended = [node for node in graph.nodes if isinstance(node.operation, SelfAttention)]
    assert len(attended) == 2
    # queries, keys, values, and the logarithm of a sum for each head and token: the core's own
    cores = len(attended) * (3 * 12 * 32 + 4 * 12)
    told = sum(kept.values()) + sum(measured) + cores
    # 4 layer norms keep mean and deviation of each of 12 rows, which their formula leaves out
    assert told == pytest.approx(real - 4 * 2 * 12, rel=0.01)


def test_calls_have_a_part_that_no_batch_changes(encoder: tuple[Graph, str]) -> None:
    graph, notes = encoder
    assert "timed with batches of 4 and 16: seconds of a call, and of each sample" in notes
    timings = [node.operation for node in graph.nodes if isinstance(node.operation, Measured)]
    assert any(operation.forward_call_s > 0.0 for operation in timings)


def test_a_fixed_batch_is_said(code: Path) -> None:
    graph, notes = graph_from(code, "fixed", "4x6")
    assert "timed with a batch of 4 alone, as the module does not take 16" in notes
    assert "seconds a sample hold near that batch only" in notes
    timings = [node.operation for node in graph.nodes if isinstance(node.operation, Measured)]
    assert timings
    assert all(operation.forward_call_s == 0.0 for operation in timings)
    _, notes = graph_from(code, "fixed", "4x6", hooks=True)
    assert "timed with a batch of 4 alone" in notes


def test_a_computed_weight_is_no_layer(code: Path) -> None:
    graph, notes = graph_from(code, "computed", "4x6")
    assert sum(isinstance(node.operation, Dense) for node in graph.nodes) == 1
    assert "linear" in notes
    assert "parameters in the file" not in notes


def test_hooks_time_two_batches(code: Path) -> None:
    graph, notes = graph_from(code, "encoder", "12x12x32", hooks=True)
    assert "timed with batches of 12 and 3" in notes
    assert all(isinstance(node.operation, Measured) for node in graph.nodes)


def test_the_line_through_two_batches() -> None:
    assert line((4, 14.0), (16, 26.0)) == Line(call=10.0, sample=1.0)
    assert line((16, 26.0), (4, 14.0)) == Line(call=10.0, sample=1.0)
    assert line((4, 8.0), None) == Line(call=0.0, sample=2.0)
    assert line((4, 8.0), (16, 7.0)) == Line(call=8.0, sample=0.0)
    assert line((4, 1.0), (16, 16.0)) == Line(call=0.0, sample=0.25)


def test_starting_autograd_is_no_part_of_an_operation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forward takes 1 s, forward and backward 6 s, a backward that has nothing to do 3 s."""
    told = iter([1.0, 6.0, 3.0])
    monkeypatch.setattr(seconds, "fastest", lambda function: (next(told), function()))
    assert timed(lambda x: x * 2.0, (torch.randn(4, 8),), {}) == (1.0, 2.0)
