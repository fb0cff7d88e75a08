"""Which collectives the plans wait for: kinds, sizes and groups by their share of link seconds.

    in layers    four exchanges of a split layer a pass and micro-batch; a ring's keys and values
    shards       ZeRO-3 gathers a layer in forward and in backward and scatters it once
    gradients    each bucket once a step
    messages     between stages, one forward and one backward a micro-batch

What a shape takes is count x modelled seconds, whether hidden or not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from executor.calibration.cases import kinds
from executor.calibration.cases.samples import link_time
from executor.calibration.cases.targets import Target
from executor.calibration.choice.belief import Shape
from parsim.arrays import Array
from parsim.cluster.hardware import System
from parsim.cost.data.data_parallel import DataParallel
from parsim.cost.layer.kept.operator_tensors import border_bytes
from parsim.cost.step.messages import gradient_messages, layer_messages, shard_messages
from parsim.cost.step.stages import layer_counts, stage_parameters
from parsim.cost.step.step import stage_cut
from parsim.plan import PlanTable

EXCHANGES = 4.0
"""Collectives of a split layer in one pass: one before and one behind attention, likewise the MLP;
half of them without sequence parallelism, where they are as long as two."""
GATHERS = 3.0
"""Collectives of a layer's parameters under ZeRO-3: forward, backward, and its gradient's
reduce-scatter."""
VALUE = 4.0
"""Bytes of a value: sizes are whole numbers of them for each rank of a group."""


def link_needs(targets: Sequence[Target], system: System) -> dict[Shape, Array]:
    """Share of each target's link seconds by shape, (P,); empty where no target has links.

    Shapes are those of link samples: bytes and ranks of a collective, bytes of a message.
    """
    needs: dict[Shape, Array] = {}
    for row, target in enumerate(targets):
        seconds: dict[Shape, float] = {}
        for shape, count in _needed(target):
            seconds[shape] = seconds.get(shape, 0.0) + count * _seconds(system, shape)
        total = sum(seconds.values())
        for shape, part in seconds.items():
            needs.setdefault(shape, np.zeros(len(targets)))[row] += part / total
    return needs


def _seconds(system: System, shape: Shape) -> float:
    kind, where = shape
    return link_time(system, kind, dict(zip(("bytes", "ranks"), where, strict=False)))


def _needed(target: Target) -> Iterator[tuple[Shape, float]]:
    """Shapes of one step, and how often each is sent."""
    job, plan = target.job, target.plan
    table = PlanTable.of([plan])
    data, cut = DataParallel.of(job, table), stage_cut(job, table)
    parameters = stage_parameters(job.model, table, layer_counts(job.model, cut)).max(axis=0)
    passes = 2.0 * plan.num_microbatches * job.model.num_layers / plan.pp
    for message in layer_messages(job, table):
        yield _shape(message.kind, message.size, message.where.size), EXCHANGES * passes
    if plan.zero_stage == 3:
        for message in shard_messages(job, data, parameters):
            yield _shape(message.kind, message.size, message.where.size), GATHERS * passes / 2.0
    bucket = np.minimum(data.bucket, parameters)
    for message in gradient_messages(data, bucket):
        count = float(np.ceil(parameters / bucket)[0])
        yield _shape(message.kind, message.size, message.where.size), count
    if plan.pp > 1:
        size = float(border_bytes(table, job.model.border)[0])
        whole = max(size - size % VALUE, VALUE)
        yield (kinds.SEND_RECV, (whole,)), 2.0 * plan.num_microbatches


def _shape(kind: str, size: Array, ranks: Array) -> Shape:
    """The shape of a sample: whole values for each rank."""
    count, value = float(ranks[0]), float(size[0])
    return kind, (max(value - value % (VALUE * count), VALUE * count), count)
