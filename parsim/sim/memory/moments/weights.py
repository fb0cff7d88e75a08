"""Bytes of a W in eager PyTorch: matrices get their gradients one by one, the first layer's first.

    norm   q   k   v   projection   norm   gate    up      down   next layer ... head
    dW     dW  dW  dW  dW           dW     dW      dW      dW
                                            +------+  two at once: torch still holds the last one
                                                      while it makes the next, then adds it

What an operator needed for it is gone behind it: the gradient of what it gave, and what it read,
where nothing else of the backward, which was done in I, keeps that. So the highest moment above
the begin of a W is

    max over matrices i of a layer of  dW_i + dW_{i-1} - all that is gone before i

and of the last stage also its head's, when all layers' are gone.

Source: `stage_backward_weight` of torch 2.13, its parameters in order as a stage of two layers
gave them; allocations of the executor's steps, recorded operator by operator (CPU).
Leaves out: biases, whose gradients are vectors.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from parsim.arrays import Array, Flags
from parsim.cost.job import Job
from parsim.cost.layer.composed import WIDE, casts_weights, is_composed_norm
from parsim.cost.layer.head_copies import beyond_share, rank_values
from parsim.cost.layer.kept.half_products import matrices
from parsim.cost.software import Software
from parsim.cost.step.stages import over_kinds
from parsim.model.layer import Layer, is_trained
from parsim.model.operators import Elementwise, Experts, Linear, Split
from parsim.plan import PlanTable


class _Made(NamedTuple):
    """Bytes of a matrix' gradient, and of what is gone when it was made, (B,) each."""

    gradient: Array
    gone: Array


class WeightPass(NamedTuple):
    """Bytes of a W on each stage, (S, B).

    Its highest moment above its begin, all gradients that it makes, and all that is gone behind it.
    """

    highest: Array
    made: Array
    gone: Array

    @classmethod
    def of(cls, job: Job, table: PlanTable, counts: Array) -> WeightPass:
        """Walk through the layers of each stage; `counts` (S, K) says how many of each kind."""
        kinds = [_in_order(layer, table, job.software) for layer in job.model.kinds]
        totals = [_total(kind, table) for kind in kinds]
        made = over_kinds(counts, np.stack([total.gradient for total in totals]))
        gone = over_kinds(counts, np.stack([total.gone for total in totals]))
        inside = np.stack([_highest(kind, table) for kind in kinds])
        highest = np.max(np.where(counts[:, :, None] > 0, inside, 0.0), axis=1)
        behind = [
            each for layer in job.model.behind for each in _in_order(layer, table, job.software)
        ]
        highest[-1] = np.maximum(highest[-1], _highest(behind, table) - gone[-1])
        made[-1] += _total(behind, table).gradient
        gone[-1] += _total(behind, table).gone
        return cls(highest, made, gone)

    def above(self, *, first: bool, bucketed: Flags) -> Array:
        """Bytes that a W adds at its highest, gradients that stay not among them, (B,).

        What goes to a bucket (B,) is handed over behind the last matrix. The first gradients stay
        as they are, and are whole at the end only.
        """
        heaped = np.maximum(self.highest, self.made - self.gone)
        alone = -self.gone if first else self.highest
        return np.asarray(np.where(bucketed, heaped, alone).max(axis=0))


def _total(rows: Sequence[_Made], table: PlanTable) -> _Made:
    zero = np.zeros(len(table))
    return _Made(
        np.asarray(sum((each.gradient for each in rows), start=zero)),
        np.asarray(sum((each.gone for each in rows), start=zero)),
    )


def _highest(made: Iterable[_Made], table: PlanTable) -> Array:
    """The highest moment above the begin, (B,), at least 0."""
    last = gone = highest = np.zeros(len(table))
    for each in made:
        highest = np.maximum(highest, each.gradient + last - gone)
        last, gone = each.gradient, gone + each.gone
    return highest


def _in_order(layer: Layer, table: PlanTable, software: Software) -> list[_Made]:
    """The matrices and norms of a layer from its input on."""
    return list(_walk(layer, table, software))


def _walk(layer: Layer, table: PlanTable, software: Software) -> Iterator[_Made]:
    for position, op in enumerate(layer.operators):
        if not is_trained(op):
            continue
        if isinstance(op, Linear):
            yield from _product(layer, position, op, table)
        elif isinstance(op, Elementwise) and op.kind == "norm":
            wide = is_composed_norm(op, software)
            values = rank_values(op, table.on_rank(op.tokens), table)
            gone = 2.0 * values * (WIDE if wide else table.precision.activation)
            yield _Made(np.zeros(len(table)), np.asarray(gone))
        elif isinstance(op, Experts):
            yield from _experts(op, table)


def _product(layer: Layer, position: int, op: Linear, table: PlanTable) -> Iterator[_Made]:
    tokens, value = table.on_rank(op.tokens), table.precision.activation
    ranks = table.tp if op.split is not Split.NONE else 1
    columns = table.tp if op.split is Split.COLUMN else table.sequence_split
    each = list(matrices(layer, op))
    for number, (width, heads) in enumerate(each):
        copied = beyond_share(width, heads, table) if heads else np.zeros(len(table))
        weights = op.inputs * (width / ranks + copied)
        gone = tokens * (width / columns + copied) * value * (op.name != "logits" or value < WIDE)
        if number == len(each) - 1:
            gone = gone + _read(layer, position, op, table)
        yield _Made(weights * weight_bytes(table), gone)


def _read(layer: Layer, position: int, op: Linear, table: PlanTable) -> Array:
    """Bytes of a product's input that nothing else keeps, (B,): attention keeps its own output."""
    if not op.keeps_input or position in layer.shared_inputs or op.name == "projection":
        return np.zeros(len(table))
    ranks = table.tp if op.split is Split.ROW else table.sequence_split
    return np.asarray(table.on_rank(op.tokens) * op.inputs / ranks * table.precision.activation)


def _experts(op: Experts, table: PlanTable) -> Iterator[_Made]:
    """Both products of a rank's experts."""
    value, width = table.precision.activation, op.ffn_hidden_size / table.etp
    rows = table.on_rank(op.tokens) / table.sequence_split * op.top_k * table.etp * value
    matrix = op.width * width * op.count / table.ep * value
    yield _Made(op.halves * matrix, rows * (op.halves * width + op.width))
    yield _Made(matrix, rows * (op.width + width))


def weight_bytes(table: PlanTable) -> Array:
    """Bytes of a value of a matrix' gradient as it is added, (B,): a cast weight's is cast back."""
    return np.where(casts_weights(table), WIDE, table.precision.activation)
