"""Any module as a model file: known operations exactly, others timed, hooks where export fails."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from executor.model.graph.modules import MODULES  # noqa: E402
from executor.model.graph.stage import GraphStage  # noqa: E402
from executor.profiling.__main__ import profiled  # noqa: E402
from parsim.errors import InputError  # noqa: E402
from parsim.launch.profiling import profile  # noqa: E402
from parsim.model.graph.build import build_graph, owners  # noqa: E402
from parsim.model.graph.document import graph_of, read_graph  # noqa: E402
from parsim.model.graph.pointwise import FUNCTIONS, Multiply, Pointwise  # noqa: E402
from parsim.model.graph.sequences import Lstm  # noqa: E402
from parsim.model.graph.texts import Measured  # noqa: E402
from parsim.plan import Recompute  # noqa: E402
from parsim.scenario import load_scenario  # noqa: E402

CODE = '''
import torch
from torch import nn


class Residual(nn.Module):
    """A block with a strided short cut, squeeze-and-excitation, and a branch that joins."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(8, 16, 3, stride=2, padding=1, groups=4, bias=False)
        self.bn = nn.BatchNorm2d(16)
        self.short = nn.Conv2d(8, 16, 1, stride=2)
        self.squeeze = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Conv2d(16, 4, 1), nn.ReLU(), nn.Conv2d(4, 16, 1),
            nn.Sigmoid(),
        )

    def forward(self, x):
        y = self.bn(self.conv(x))
        y = y * self.squeeze(y)
        y += self.short(x)
        return torch.cat((torch.relu(y), y), dim=1)


def network():
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(inplace=True), Residual(), nn.MaxPool2d(2),
        nn.Dropout(0.1), nn.Flatten(), nn.Linear(32 * 16, 10),
    )


class Odd(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(8, 16), nn.Linear(16, 4)

    def forward(self, x):
        return self.last(torch.cumsum(self.first(x), 1))


def odd():
    return Odd()


class Choosing(Odd):
    def forward(self, x):
        h = self.first(x)
        return self.last(h if h.sum() > 0 else -h)


def choosing():
    return Choosing()


class Gated(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.gate = nn.Linear(8, 16), nn.Linear(8, 16)
        self.act = nn.Sequential(
            nn.SiLU(), nn.Tanh(), nn.Hardswish(), nn.ReLU6(), nn.ELU(), nn.Softplus()
        )

    def forward(self, x):
        return self.act(self.gate(x)) * self.up(x)


def gated():
    return Gated()


def words():
    return nn.Sequential(nn.Embedding(50, 16), nn.LayerNorm(16), nn.Linear(16, 50))


class Tied(nn.Module):
    """A head with the weights of its table, and a learned place that no operation owns."""

    def __init__(self):
        super().__init__()
        self.head, self.table = nn.Linear(16, 50, bias=False), nn.Embedding(50, 16)
        self.head.weight = self.table.weight
        self.place = nn.Parameter(torch.zeros(1, 12, 16))

    def forward(self, x):
        return self.head(self.table(x) + self.place)


def tied():
    return Tied()


class Again(nn.Module):
    def __init__(self):
        super().__init__()
        self.plain, self.norm = nn.Linear(8, 8, bias=False), nn.LayerNorm(8)

    def forward(self, x):
        for _ in range(3):
            x = self.plain(x)
        return self.norm(self.norm(x))


def again():
    print("a word of the user's")
    return Again()


class Loop(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(50, 16)
        self.lstm = nn.LSTM(16, 8, batch_first=True)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.two = nn.Linear(8, 4)

    def forward(self, x):
        h, _ = self.lstm(self.table(x))
        h, _ = self.attention(h, h, h)
        return self.two(h if h.sum() > 1e9 else -h)


def loop():
    return Loop()


class Pair(nn.Module):
    def forward(self, x, y):
        return x + y


def pair():
    return Pair()


def number():
    return 3


def broken():
    raise ValueError("no weights here")
'''


def notes_of(document: dict[str, object]) -> list[str]:
    notes = document["notes"]
    assert isinstance(notes, list)
    return notes


def test_functions_of_each_value_have_formulas(code: Path, tmp_path: Path) -> None:
    document = profiled(f"{code}:gated", ["4x8"], hooks=False)
    assert document["notes"] == []
    file = tmp_path / "gated.yaml"
    file.write_text(str(document["text"]), encoding="utf-8")
    operations = [node.operation for node in read_graph(file).nodes]
    named = [op.function for op in operations if isinstance(op, Pointwise)]
    assert named == ["silu", "tanh", "hardswish", "relu6", "elu", "softplus"]
    assert sum(isinstance(op, Multiply) for op in operations) == 1


def test_the_twin_computes_every_function() -> None:
    x = torch.linspace(-8.0, 8.0, 33)[None]
    for function in FUNCTIONS:
        twin = MODULES[Pointwise](Pointwise(function=function), ((33,),))
        assert twin(x).shape == x.shape, function
        assert twin(x).isfinite().all(), function
    product = MODULES[Multiply](Multiply(), ((33,), (33,)))
    assert torch.equal(product(x, x), x * x)


def test_known_operations_are_written_as_such(code: Path, tmp_path: Path) -> None:
    document = profiled(f"{code}:network", ["4x3x16x16"], hooks=False)
    assert document["notes"] == []
    file = tmp_path / "mine.yaml"
    file.write_text(str(document["text"]), encoding="utf-8")
    graph = read_graph(file)
    kinds = [type(node.operation).__name__ for node in graph.nodes]
    assert kinds.count("Conv2d") == 5
    assert {"BatchNorm2d", "Scale", "Add", "Concat", "MaxPool2d", "Dense"} <= set(kinds)
    assert not any(isinstance(node.operation, Measured) for node in graph.nodes)
    # counted by hand: 3x8x9+8; 2x16x9, 32; 8x16+16; 16x4+4, 4x16+16; 512x10+10
    by_hand = 224 + 288 + 32 + 144 + 68 + 80 + 5130
    assert build_graph(graph).parameters == by_hand == document["parameters"]
    assert (graph.input_shape, graph.output_shape) == ((3, 16, 16), (1,))


def test_a_model_file_goes_into_a_scenario(code: Path, tmp_path: Path) -> None:
    text = str(profiled(f"{code}:network", ["4x3x16x16"], hooks=False)["text"])
    (tmp_path / "mine.yaml").write_text(text, encoding="utf-8")
    scenario = tmp_path / "s.yaml"
    scenario.write_text(
        "model: {file: mine.yaml}\ncluster: {system: cpu, nodes: 1}\nsoftware: executor-cpu\n"
        "training: {global_batch_size: 8, precision: fp32}\nplan: {dp: 2, microbatch_size: 4}\n",
        encoding="utf-8",
    )
    job = load_scenario(scenario).job
    assert job.model.parameters == 5966


def test_an_unknown_operation_is_timed(code: Path) -> None:
    document = profiled(f"{code}:odd", ["4x8"], hooks=False)
    note, batches = notes_of(document)
    assert batches.startswith("timed with batches of 4 and 16")
    assert note.startswith("1 of 4 operations have no formula and are timed on cpu")
    assert note.endswith(": cumsum")
    graph = graph_of(json.loads(str(document["text"])))
    operations = [node.operation for node in graph.nodes]
    (timed,) = [operation for operation in operations if isinstance(operation, Measured)]
    assert timed.forward_s + timed.forward_call_s > 0.0
    assert graph.device.startswith("cpu")


def test_what_cannot_be_exported_is_timed_by_hooks(code: Path) -> None:
    document = profiled(f"{code}:choosing", ["4x8"], hooks=False)
    first, second, chain, third = notes_of(document)
    assert "(nets.py:" in first
    assert re.match(r"\d+ % of the forward is in no module; branches, sums", chain)
    assert third.startswith("timed with batches of 4 and 16")
    assert first.startswith("torch.export: ")
    assert "modules are timed one after another instead (hooks)" in first
    assert second.startswith("all of 2 modules are timed")
    graph = graph_of(json.loads(str(document["text"])))
    assert [node.name for node in graph.nodes] == ["first", "last"]
    assert build_graph(graph).parameters == 9 * 16 + 17 * 4


def test_parameters_are_counted_once_wherever_they_stand(code: Path) -> None:
    """A weight that is used twice, a table that a sum takes; the embedding is registered last."""
    document = profiled(f"{code}:tied", ["2x12"], hooks=False)
    assert document["parameters"] == 50 * 16 + 12 * 16
    graph = graph_of(json.loads(str(document["text"])))
    assert list(owners(graph)) == ["head"]
    (added,) = [node.operation for node in graph.nodes if isinstance(node.operation, Measured)]
    assert added.parameters == 12 * 16
    assert graph.profiled_parameters == document["parameters"]
    typed = profiled(f"{code}:tied", ["2x12:int64"], hooks=False)
    assert typed["parameters"] == document["parameters"]


def test_what_the_file_cannot_share_is_said_where_it_is_used(code: Path, tmp_path: Path) -> None:
    """A linear layer used three times is shared, a normalisation used twice counts twice."""
    document = profiled(f"{code}:again", ["4x8"], hooks=False)
    module = 8 * 8 + 16
    assert document["parameters"] == module + 16
    (tmp_path / "mine.yaml").write_text(str(document["text"]), encoding="utf-8")
    graph = read_graph(tmp_path / "mine.yaml")
    assert set(owners(graph).values()) == {"plain"}
    stage = GraphStage(graph, range(len(graph.layers)), Recompute.NONE)
    tables = [part for part in stage.modules() if isinstance(part, torch.nn.Linear)]
    assert len(tables) == 3
    assert all(part.weight is tables[0].weight for part in tables)
    scenario = tmp_path / "s.yaml"
    scenario.write_text(
        "model: {file: mine.yaml}\ncluster: {system: cpu, nodes: 1}\nsoftware: executor-cpu\n"
        "training: {global_batch_size: 8, precision: fp32}\nplan: {dp: 2, microbatch_size: 4}\n",
        encoding="utf-8",
    )
    notes = [note for note in load_scenario(scenario).notes if "that was profiled has" in note]
    assert notes
    assert f"{module:,}" in notes[0]


def test_hooks_see_tuples_and_attention(code: Path) -> None:
    """All tensors of an LSTM's tuple count, and attention is one module with its parameters."""
    document = profiled(f"{code}:loop", ["2x12"], hooks=True)
    graph = graph_of(json.loads(str(document["text"])))
    assert [node.name for node in graph.nodes] == ["table", "lstm", "attention", "two"]
    lstm = graph.nodes[1].operation
    assert lstm.shape(((1,),)) == (12 * 8 + 2 * 8,)
    whole = 50 * 16 + 4 * 8 * (16 + 8 + 2) + 4 * 8 * (8 + 1) + 4 * 9
    assert document["parameters"] == whole == graph.profiled_parameters


def test_the_users_words_are_not_the_document(
    code: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = profile(f"{code}:again", ["4x8"], tmp_path / "again.yaml")
    assert document["name"] == "nets"


def test_an_embedding_reads_tokens(code: Path) -> None:
    document = profiled(f"{code}:words", ["2x12"], hooks=False)
    assert document["notes"] == []
    assert document["parameters"] == 50 * 16 + 32 + 17 * 50


@pytest.mark.parametrize(
    ("function", "sizes", "message"),
    [
        ("pair", "4x3", "forward takes x, y; no --input is given for y: add one"),
        ("tied", "4x12:text", "allowed types: float32, int64, int32, bool"),
        ("networks", "4x3x16x16", "has no function 'networks' (did you mean 'network'?)"),
        ("number", "4x3", "returned int; it must return a torch module"),
        ("broken", "4x3", "failed: ValueError: no weights here"),
        ("network", "4,3", "--input '4,3' must be BATCHxSIZES, such as 32x3x224x224"),
        ("network", "4x5x16x16", "failed: RuntimeError"),
    ],
)
def test_bad_input(code: Path, function: str, sizes: str, message: str) -> None:
    with pytest.raises(InputError) as told:
        profiled(f"{code}:{function}", [sizes], hooks=False)
    assert message in str(told.value)


def test_a_place_needs_a_file_and_a_function() -> None:
    with pytest.raises(InputError, match=r"'net' must be FILE\.py:FUNCTION"):
        profiled("net", ["4x3"], hooks=False)
    with pytest.raises(InputError, match=r"nowhere\.py: no such file"):
        profiled("nowhere.py:net", ["4x3"], hooks=False)


RECURRENT = """
import torch
from torch import nn


class Stacked(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(50, 16)
        self.lstm = nn.LSTM(16, 8, 2, batch_first=True, dropout=0.1)
        self.gru = nn.GRU(8, 4, bidirectional=True)
        self.head = nn.Linear(8, 5)

    def forward(self, x):
        h, (last, _) = self.lstm(self.table(x))
        y = self.gru(h.transpose(0, 1))[0]
        return self.head(y[-1]) + last.sum()


def stacked():
    return Stacked()


class Projected(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm, self.head = nn.LSTM(16, 8, proj_size=4, batch_first=True), nn.Linear(4, 5)

    def forward(self, x):
        return self.head(self.lstm(x)[0][:, -1])


def projected():
    return Projected()


def volumes():
    return nn.Sequential(nn.Conv3d(3, 4, 3), nn.BatchNorm3d(4), nn.Flatten(), nn.Linear(32, 5))


def signals():
    return nn.Sequential(nn.Conv1d(3, 4, 3), nn.BatchNorm1d(4), nn.Flatten(), nn.Linear(24, 5))
"""


@pytest.fixture(scope="module")
def recurrent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("recurrent") / "cells.py"
    file.write_text(RECURRENT, encoding="utf-8")
    return file


def test_stacked_and_two_way_recurrent_layers_are_known(recurrent: Path) -> None:
    document = profiled(f"{recurrent}:stacked", ["3x7:int64"], hooks=False)
    graph = graph_of(json.loads(str(document["text"])))
    named = {n.name: n.operation for n in graph.nodes if isinstance(n.operation, Lstm)}
    cells = list(named.values())
    sizes = [(cell.gates, cell.hidden_size, cell.bidirectional) for cell in cells]
    assert sizes == [(4, 8, False), (4, 8, False), (3, 4, True)]
    assert [graph.shapes[name] for name in named] == [(7, 8)] * 3
    # by hand: two biases a gate and direction
    lstm = 4 * 8 * (16 + 8 + 2) + 4 * 8 * (8 + 8 + 2)
    gru = 2 * 3 * 4 * (8 + 4 + 2)
    assert document["parameters"] == 50 * 16 + lstm + gru + 9 * 5 == graph.profiled_parameters


def test_a_projected_cell_is_timed(recurrent: Path) -> None:
    document = profiled(f"{recurrent}:projected", ["3x7x16"], hooks=False)
    assert "lstm" in notes_of(document)[0]


@pytest.mark.parametrize(("name", "sizes"), [("volumes", "2x3x4x4x4"), ("signals", "4x3x8")])
def test_running_statistics_have_no_gradient(recurrent: Path, name: str, sizes: str) -> None:
    """Batch normalisation of volumes and signals is timed, with its running mean as it is."""
    document = profiled(f"{recurrent}:{name}", [sizes], hooks=False)
    graph = graph_of(json.loads(str(document["text"])))
    timed = [node.operation for node in graph.nodes if isinstance(node.operation, Measured)]
    (norm,) = [operation for operation in timed if operation.parameters == 2 * 4]
    assert norm.forward_s + norm.forward_call_s > 0.0
    assert "torch.export" not in notes_of(document)[0]
