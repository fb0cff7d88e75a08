"""Recurrent modules of exported graphs, stacked or in two directions, as layers that parsim knows.

aten.lstm(x, states, params, ...) -> (y, h, c)     layer 0 ── dropout ── layer 1 ── ...  = y
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import getitem
from typing import Any

from torch import Tensor, fx

from parsim.model.graph.operation import TEXT, Operation, Shape
from parsim.model.graph.pointwise import Dropout
from parsim.model.graph.sequences import Lstm

GATES = {"lstm": 4, "gru": 3}
"""Gates of the modules by torch's words."""
EACH = 4
"""Parameters of a layer in one direction: two weights and two biases."""


def recurrent_layers(
    word: str, given: Mapping[str, Any], sources: int, inputs: Shape, params: Sequence[Tensor]
) -> list[Operation]:
    """The layers of a module; none where it is another one, or starts from states of its own.

    Args:
        word: torch's name of the operation.
        given: its arguments by name.
        sources: how many tensors that come from the input it takes.
        inputs: sizes of a sample of its input.
        params: its parameters, layer after layer.
    """
    rows = sources == 1 and len(inputs) == TEXT and "batch_first" in given  # else packed ones
    if word not in GATES or not rows or not given.get("has_biases"):
        return []
    both, count = bool(given["bidirectional"]), int(given["num_layers"])
    hidden = params[1].shape[-1]
    projected = params[1].shape[0] != GATES[word] * hidden
    if projected or len(params) != EACH * count * (1 + both):
        return []
    layer = Lstm(hidden_size=hidden, bidirectional=both, gates=GATES[word])
    rate = float(given["dropout"])
    layers: list[Operation] = [layer]
    for _ in range(count - 1):
        layers += [Dropout(p=rate), layer] if rate and given["train"] else [layer]
    return layers


def takes_first(n: fx.Node) -> bool:
    """Whether a node is the outputs of a recurrent module, not its last states."""
    return n.target is getitem and n.args[1] == 0
