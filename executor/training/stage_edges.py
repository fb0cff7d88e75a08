"""Shapes and types of the tensors that enter each stage, and of what leaves the last one."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from executor.model.stage import layer_count, reads_text
from executor.parallel.precision import edge_dtype, logits_dtype
from executor.pipeline.tensor_spec import TensorSpec
from parsim.cost.step.stages import plan_cut
from parsim.model.graph.losses import classes
from parsim.model.graph.record import INPUT, Graph
from parsim.model.reader import Description
from parsim.model.transformer import TransformerSpec
from parsim.plan import Plan


def stage_edges(spec: Description, plan: Plan) -> Iterator[TensorSpec]:
    """What enters each stage, and what leaves the last one, for one micro-batch."""
    yield from _of_images(spec, plan) if isinstance(spec, Graph) else _of_text(spec, plan)


def _of_images(graph: Graph, plan: Plan) -> Iterator[TensorSpec]:
    """Tensors at the borders of a graph's stages, of which one crosses each cut (`check_cut`)."""
    size, end, hidden = plan.microbatch_size, 0, edge_dtype(plan)
    first = torch.int64 if reads_text(graph) else torch.float32
    yield TensorSpec((size, *graph.input_shape), first)
    for count in plan_cut(plan, layer_count(graph))[:-1]:
        end += count
        (name,) = graph.crossing()[end - 1] if end else (INPUT,)
        yield TensorSpec((size, *graph.shapes[name]), hidden)
    among = classes(graph)
    yield TensorSpec((size, len(among), max(among)), logits_dtype(plan))


def _of_text(spec: TransformerSpec, plan: Plan) -> Iterator[TensorSpec]:
    size, tokens = plan.microbatch_size, spec.seq_len // plan.cp
    local = tokens // plan.tp if plan.sequence_parallel else tokens
    hidden = edge_dtype(plan)
    yield TensorSpec((size, tokens), torch.int64)
    for _ in range(plan.num_stages - 1):
        yield TensorSpec((size, local, spec.hidden_size), hidden)
    # each tensor rank's part of the vocabulary: the loss is taken of that
    yield TensorSpec((size, tokens, spec.vocab_rows // plan.tp), logits_dtype(plan))
