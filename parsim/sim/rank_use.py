"""What every pipeline rank of every class of replicas is and does, where replicas may differ."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from parsim.arrays import Array, Index
from parsim.cluster.groups import in_groups
from parsim.cluster.hardware import NodeGroup
from parsim.cost.step.step import stage_cut
from parsim.sim.prediction import RankUse
from parsim.sim.recurrence.evaluate import Evaluation
from parsim.sim.step.priced_step import PricedStep
from parsim.sim.step.pricing import groups_in


def rank_uses(evaluation: Evaluation) -> tuple[RankUse, ...]:
    """One entry for each pipeline rank of each class, class by class."""
    step = evaluation.step
    known = _ByRank(_layers(step), evaluation.busy, evaluation.clock, evaluation.peak)
    return tuple(
        _rank_use(evaluation, known, rank, number)
        for number in range(step.num_classes)
        for rank in range(step.plan.pp)
    )


def _layers(step: PricedStep) -> Index:
    """How many layers each pipeline rank of each class holds, (p, C)."""
    cut = stage_cut(step.job_on(0), step.pricing.table)
    schedules = [compiled.schedule for compiled in step.compiled]
    rows = [
        [
            sum(cut[stage % schedule.depth] for stage in schedule.stages_on(rank))
            for schedule in schedules
        ]
        for rank in range(step.plan.pp)
    ]
    return np.array(rows, dtype=np.int64)


class _ByRank(NamedTuple):
    """Layers, busy seconds, the pipeline's end and the bytes at the peak, (p, C) each."""

    layers: Index
    busy: Array
    clock: Array
    peak: Array


def _rank_use(evaluation: Evaluation, known: _ByRank, rank: int, number: int) -> RankUse:
    step = evaluation.step
    groups = groups_of_rank(evaluation, rank, number)
    return RankUse(
        pipeline_rank=rank,
        replicas=tuple(np.flatnonzero(step.classes.class_of == number).tolist()),
        groups=tuple(group.name for group in groups),
        devices=tuple(dict.fromkeys(group.system.device.id for group in groups)),
        layers=int(known.layers[rank, number]),
        microbatches=step.schedule(number).num_microbatches,
        busy=float(known.busy[rank, number]),
        end=float(known.clock[rank, number]),
        peak_allocated=float(known.peak[rank, number]),
        usable=min(step.job.software.usable_memory(group.system.device) for group in groups),
    )


def groups_of_rank(evaluation: Evaluation, rank: int, number: int) -> list[NodeGroup]:
    """The groups of nodes that a pipeline rank of a class lies on."""
    step = evaluation.step
    groups = in_groups(step.job.cluster).groups
    replica = int(step.classes.first[number])
    return [groups[group] for group in groups_in(int(step.devices.groups[rank, replica]))]
