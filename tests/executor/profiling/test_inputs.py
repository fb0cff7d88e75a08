"""Modules that take several tensors: encoders with decoders, tokens with a mask."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from executor.model.loss import check_trainable  # noqa: E402
from executor.profiling.__main__ import built, profiled  # noqa: E402
from executor.profiling.inputs import batch_of  # noqa: E402
from parsim.errors import InputError, ModelError  # noqa: E402
from parsim.model.graph.document import graph_of, graph_text  # noqa: E402
from parsim.model.graph.record import Graph  # noqa: E402
from parsim.model.graph.texts import Embedding  # noqa: E402
from parsim.scenario import load_scenario  # noqa: E402
from parsim.sim import simulate  # noqa: E402

CODE = '''
import torch
from torch import nn


class Masked(nn.Module):
    """Four blocks whose attention adds one bias, which is made of the mask alone."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(50, 16)
        self.mixed = nn.ModuleList(nn.Linear(16, 16) for _ in range(4))
        self.head = nn.Linear(16, 50)

    def forward(self, ids, mask):
        bias = (1.0 - mask)[:, None, :] * -1e4
        x = self.table(ids)
        for mixed in self.mixed:
            scores = x @ x.transpose(1, 2) + bias
            x = x + mixed(scores.softmax(-1) @ x)
        return self.head(x)


def masked():
    return Masked()


class Translator(nn.Module):
    def __init__(self):
        super().__init__()
        self.source, self.target = nn.Embedding(40, 16), nn.Embedding(30, 16)
        self.encoder, self.decoder = nn.Linear(16, 16), nn.Linear(16, 16)
        self.head = nn.Linear(16, 30)

    def forward(self, src, tgt, *, shift=None, seen=None):
        memory = self.encoder(self.source(src)).mean(1, keepdim=True)
        y = self.decoder(self.target(tgt)) + memory
        if seen is not None:
            y = seen @ y
        return self.head(y)


def translator():
    return Translator()


class Several(nn.Module):
    def __init__(self):
        super().__init__()
        self.one = nn.Linear(4, 4)

    def forward(self, *tensors):
        return self.one(sum(tensors))


def several():
    return Several()
'''


def read(document: dict[str, object]) -> Graph:
    return graph_of(json.loads(str(document["text"])))


@pytest.fixture(scope="module")
def masked(code: Path) -> Graph:
    return read(profiled(f"{code}:masked", ["4x8", "4x8"], hooks=False))


def test_a_mask_enters_beside_the_tokens(masked: Graph) -> None:
    assert masked.entering == {"input": (8,), "mask": (8,)}
    assert graph_of(json.loads(graph_text(masked))) == masked


def test_what_is_made_of_a_mask_alone_crosses_no_cut(masked: Graph) -> None:
    """The table, each of the four blocks, and the head with the loss can be stages."""
    assert all(len(names) == 1 for names in masked.crossing())
    sums = [node.name for layer in masked.layers for node in layer[-1:] if "add" in node.name]
    assert len(sums) >= 4


def test_a_pipeline_is_cut_between_blocks(masked: Graph, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(graph_text(masked), encoding="utf-8")
    scenario = tmp_path / "s.yaml"
    scenario.write_text(
        "model: {file: mine.yaml}\ncluster: {system: cpu, nodes: 1}\nsoftware: executor-cpu\n"
        "training: {global_batch_size: 8, precision: fp32}\nplan: {pp: 2, microbatch_size: 4}\n",
        encoding="utf-8",
    )
    asked = load_scenario(scenario)
    assert simulate(asked.job, asked.fixed_plan()).step_time > 0.0
    with pytest.raises(ModelError, match="takes input, mask, and runs have data for one input"):
        check_trainable(masked)


def test_both_texts_of_a_translator_are_token_ids(code: Path) -> None:
    """The target is shorter; neither has a type, and both tables' rows bound the ids."""
    graph = read(profiled(f"{code}:translator", ["4x12", "4x6"], hooks=False))
    assert graph.entering == {"input": (12,), "tgt": (6,)}
    tables = {
        node.inputs[0]: node.operation.num_embeddings
        for node in graph.nodes
        if isinstance(node.operation, Embedding)
    }
    assert tables == {"input": 40, "tgt": 30}


def test_arguments_by_name_come_in_forwards_order(code: Path) -> None:
    model = built(f"{code}:translator")
    batch = batch_of("t", ["seen=6x6", "tgt=4x6", "src=4x12:int32"], model)
    assert batch.names == ("input", "tgt", "seen")
    assert [str(tensor.dtype) for tensor in batch.tensors] == [
        *("torch.int32", "torch.int64", "torch.float32")
    ]
    shapes = [tuple(tensor.shape) for tensor in batch.another().tensors]
    assert shapes == [(16, 12), (16, 6), (6, 6)]  # a square of tokens is every batch's
    graph = read(profiled(f"{code}:translator", ["seen=6x6", "tgt=4x6", "src=4x12"], hooks=False))
    assert list(graph.entering) == ["input", "tgt", "seen"]


def test_hooks_call_a_module_with_all_its_inputs(code: Path) -> None:
    graph = read(profiled(f"{code}:translator", ["4x12", "4x6"], hooks=True))
    assert [node.name for node in graph.nodes] == ["source", "encoder", "target", "decoder", "head"]
    assert not graph.further_inputs  # a chain reads one


def test_inputs_of_any_number_have_numbers(code: Path) -> None:
    graph = read(profiled(f"{code}:several", ["4x4", "4x4", "4x4"], hooks=False))
    assert list(graph.entering) == ["input", "input_2", "input_3"]


@pytest.mark.parametrize(
    ("function", "inputs", "message"),
    [
        ("masked", ["4x8"], "forward takes ids, mask; no --input is given for mask: add one for"),
        ("masked", ["4x8", "mask_of=4x8"], "there is no 'mask_of' (did you mean 'mask'?)"),
        ("masked", ["4x8", "ids=4x8"], "'ids' is given by its place and by its name"),
        ("masked", ["mask=4x8", "mask=4x8"], "an argument has two --input"),
        ("masked", ["4x8", "4x8", "4x8"], "forward takes ids, mask; 3 --input are given"),
        ("masked", ["4x8", "mask=4x8:half"], "allowed types: float32, int64, int32, bool"),
        ("masked", ["4x8", "4 x 8"], "must be BATCHxSIZES"),
    ],
)
def test_inputs_that_forward_does_not_take(
    code: Path, function: str, inputs: list[str], message: str
) -> None:
    with pytest.raises(InputError) as told:
        profiled(f"{code}:{function}", inputs, hooks=False)
    assert message in str(told.value)
