"""Parameters of stages and layers on one rank."""

from __future__ import annotations

import numpy as np

from parsim.arrays import Array
from parsim.cost.layer.head_copies import copied_parameters
from parsim.cost.step.stages import over_kinds
from parsim.model.layer import Layer
from parsim.model.model import Model
from parsim.plan import PlanTable


def stage_parameters(model: Model, table: PlanTable, counts: Array) -> Array:
    """Parameters of each stage on one rank, (S, B), its experts' among them.

    With tied embeddings and more than one stage the last stage holds a second copy of the table.
    """
    per_kind = np.stack([rank_parameters(layer, table) for layer in model.kinds])
    rows = over_kinds(counts, per_kind)
    for stage, outer in ((0, model.before), (-1, model.behind)):
        for layer in outer:
            rows[stage] += rank_parameters(layer, table)
    if model.tied_embeddings and len(counts) > 1:
        rows[-1] += tied_parameters(model, table)
    return rows


def stage_experts(model: Model, table: PlanTable, counts: Array) -> Array:
    """Parameters of experts on each stage of one rank, (S, B): part of `stage_parameters`."""
    per_kind = np.stack([rank_experts(layer, table) for layer in model.kinds])
    return over_kinds(counts, per_kind)


def per_rank(stages: Array, pp: int) -> Array:
    """Sum stages r, r + pp, ... that one pipeline rank holds: (S, B) -> (p, B)."""
    return np.asarray(stages.reshape(len(stages) // pp, pp, -1).sum(axis=0))


def tied_parameters(model: Model, table: PlanTable) -> Array:
    """Parameters of the shared vocabulary table on one rank, (B,)."""
    shared = model.lookup
    if shared is None:
        return np.zeros(len(table))
    return np.asarray(np.ceil(shared.vocab_size / table.tp) * shared.width)


def rank_parameters(layer: Layer, table: PlanTable) -> Array:
    """Parameters of one layer on one rank, (B,), copies of key-value heads among them."""
    shared = np.ceil(layer.split_parameters / table.tp) + layer.repeated_parameters
    return np.asarray(shared + copied_parameters(layer, table) + rank_experts(layer, table))


def rank_experts(layer: Layer, table: PlanTable) -> Array:
    """Parameters of a layer's experts on one rank, (B,): all experts' over ep x etp."""
    return np.asarray(layer.expert_parameters / table.expert_ranks)


def largest_layer_parameters(model: Model, table: PlanTable) -> Array:
    """Parameters of the largest single layer on one rank, (B,): what FSDP gathers at once."""
    return np.asarray(np.max([rank_parameters(layer, table) for layer in model.kinds], axis=0))
