"""Seconds that a backward split in two takes beside its kernels: one more autograd call a group.

    I   | gradients of inputs, a hook at each group keeps the gradient of its outputs |
    W   | call: group 1 | call: group 2 | ...        q | k | v | projection | norm | fc1 | ...

A group is a product's matrix and bias, or a norm's scale; frozen ones are none. For each, W begins
a backward of its own from the kept gradient: a norm's kernel runs again, and what a product reads
is no longer in a CPU's cache. `Software.split_cost` are the host's seconds of a group,
`split_reads` how often its input and the gradient of its output come from memory once more, for a
norm and for a product.

Source: torch 2.13, distributed/pipelining/_backward.py, stage_backward_input and
stage_backward_weight.
Leaves out: groups of experts, convolutions and recurrent cells; that kept gradients displace what
others would find in the cache.
"""

from __future__ import annotations

import numpy as np

from parsim.arrays import Array
from parsim.cost.job import Job
from parsim.cost.kernel.kernels import memory_time
from parsim.cost.layer.head_copies import rank_outputs, rank_values
from parsim.cost.layer.kept.half_products import matrices
from parsim.cost.layer.passes import Pass
from parsim.model.layer import Layer, is_trained
from parsim.model.operators import Elementwise, Linear, Operator, Split
from parsim.plan import PlanTable


def calls_of(job: Job, table: PlanTable, layer: Layer) -> Pass:
    """What W of a layer takes more; `launches` are the groups of parameters."""
    trained = [op for op in layer.operators if is_trained(op)]
    groups = sum(groups_of(layer, op) for op in trained)
    moved = sum((_read_again(job, table, op) for op in trained), np.zeros(len(table)))
    calls = Pass.zero(len(table))
    calls.add(memory_time(job.device, moved, launches=0), groups)
    return calls


def groups_of(layer: Layer, op: Operator) -> int:
    """Groups of an operator's parameters: queries, keys and values are three, a gate is its own."""
    if isinstance(op, Linear):
        return 3 if op.shared is not None else len(matrices(layer, op))
    if isinstance(op, Elementwise) and op.kind == "norm":
        return op.launches[0]
    return 0


def _read_again(job: Job, table: PlanTable, op: Operator) -> Array:
    """Bytes that W reads of an operator's input and gradient, once more than a whole backward."""
    norms, products = job.software.split_reads
    if isinstance(op, Linear):
        tokens = table.microbatch_size if op.per_sample else table.on_rank(op.tokens)
        inputs = op.inputs / np.where(op.split is Split.ROW, table.tp, 1)
        values = products * tokens * (inputs + rank_outputs(op, table))
    elif isinstance(op, Elementwise) and op.kind == "norm":
        values = norms * 2.0 * rank_values(op, table.on_rank(op.tokens), table)
    else:
        return np.zeros(len(table))
    return np.asarray(values * table.precision.activation)
