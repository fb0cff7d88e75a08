"""Peak memory of eager PyTorch: a walk over each rank's actions, the highest moment found.

`sim/memory/added_peaks.py` adds up every category's own peak. Eager autograd is known well
enough to do better: what lives at each moment follows from the schedule.

    loss       after the last stage's forward: logits and their softmax
    backward   at the top of a stage: the gradients of one layer's widest matrix and of its input,
               or of its experts; through a network on one rank, wherever it is highest;
               on the last stage also those of the output projection, before they are added
    embedding  at the end of the first stage's backward: a dense gradient of the token table; tied
               to the output projection on one stage, that one's from the head on, and their sum
    inputs     at the end of an I: beside what forward kept, which stays until W, the gradients of
               what each product and norm gave, and of the logits, see `.waiting`
    weights    within a W, see `.moments.weights`
    reduce     after a chunk's last backward: what its gradients are scattered into (ZeRO-1), or
               sent in where that is narrower, and the library's copies of them; all of it stays
               until the gradients of all chunks are waited for, behind the last action
    sharded    ZeRO-2 and 3 without a pipeline: what travels, see `.moments.sharded`
Gradients exist from a stage's first backward on, so GPipe's last forwards do not meet them; where
they lie in buckets, DDP's or the executor's own (`in_buckets`), they are there for the whole run.
Messages between stages take memory when they come and until they have gone (`.borders`).

Source: allocations of the executor's steps, recorded operator by operator (torch 2.13, CPU).
Leaves out: an allocator's rounding and fragmentation, library workspaces, and a ring's blocks of
keys and values: they are gone when an MLP of four times the layer's width needs the most.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from parsim.arrays import Array
from parsim.cost.data.static_bytes import host_static_bytes, static_bytes
from parsim.cost.job import Job
from parsim.cost.step.costs import StepCosts
from parsim.cost.step.layer_table import LayerTable
from parsim.cost.step.stages import layer_counts
from parsim.cost.step.step import stage_cut
from parsim.plan import PlanTable
from parsim.schedule import Schedule
from parsim.sim.memory.added_peaks import memory_use, weights_of_ranks
from parsim.sim.memory.categories import MemoryUse
from parsim.sim.memory.eager_kept import (
    StageBytes,
    composed_bytes,
    sent_messages,
    unreached_bytes,
)
from parsim.sim.memory.moments.buffers import Buffers
from parsim.sim.memory.moments.pipeline import Moment, moments
from parsim.sim.memory.moments.rank_bytes import RankBytes
from parsim.sim.memory.moments.sharded import is_sharded
from parsim.sim.memory.moments.weights import WeightPass
from parsim.sim.memory.waiting import head_waits, released_bytes, waiting_bytes
from parsim.sim.step.kept_bytes import is_split, stage_kept


def peak_memory(
    job: Job, table: PlanTable, layers: LayerTable, costs: StepCosts, schedule: Schedule
) -> MemoryUse:
    """Bytes of every category on every pipeline rank at its peak, as the stack has them."""
    if not job.software.eager:
        return memory_use(job, table, layers, costs, schedule)
    stages, weights = _stage_bytes(job, table, layers, schedule)
    waits = head_waits(job.model)
    buffers, sharded = Buffers.of(job, table, layers), bool(is_sharded(table).any())
    ranks = [
        _highest(
            RankBytes.of(job, table, costs, schedule, rank, stages, weights, buffers),
            moments(schedule, rank, stages.with_blocks, sharded=sharded, head_waits=waits),
        )
        for rank in range(schedule.pp)
    ]
    of_ranks = weights_of_ranks(costs, schedule)
    parameters, _, optimizer = static_bytes(job, table, *of_ranks)
    return MemoryUse(
        parameters=parameters,
        optimizer=optimizer + np.zeros_like(parameters),
        uncached=np.zeros_like(parameters),
        on_host=host_static_bytes(job, table, of_ranks[1] or of_ranks[0]),
        **_of_all_ranks(schedule, ranks, np.zeros_like(stages.kept)),
    )


def _stage_bytes(
    job: Job, table: PlanTable, layers: LayerTable, schedule: Schedule
) -> tuple[StageBytes, WeightPass]:
    """What each stage keeps and sends of a micro-batch, and its W."""
    counts = layer_counts(job.model, stage_cut(job, table))
    kept = stage_kept(job, table, layers, counts) + composed_bytes(job, table, counts)
    kept[0] -= unreached_bytes(job, table)
    waiting, weight_pass = _for_weights(job, table, layers, counts, schedule)
    stages = StageBytes(
        kept=schedule.in_copies(kept),
        waiting=schedule.in_copies(waiting),
        released=schedule.in_copies(released_bytes(job, table)),
        sent=schedule.in_copies(sent_messages(job, table)),
        with_blocks=schedule.in_copies(counts).sum(axis=1) > 0,
    )
    return stages, WeightPass(*map(schedule.in_copies, weight_pass))


def _of_all_ranks(
    schedule: Schedule, ranks: Sequence[dict[str, Array]], in_flight: Array
) -> dict[str, Array]:
    """Categories of all ranks, (p, B), and of each stage what is in flight, (S, B)."""
    for rank, highest in enumerate(ranks):
        in_flight[list(schedule.stages_on(rank))] = highest.pop("in_flight")
    parts = {name: np.stack([highest[name] for highest in ranks]) for name in ranks[0]}
    return {"in_flight": in_flight, **parts}


def _for_weights(
    job: Job, table: PlanTable, layers: LayerTable, counts: Array, schedule: Schedule
) -> tuple[Array, WeightPass]:
    """What each stage keeps from I to W, (S, B), and its W; nothing where no backward is in two."""
    if is_split(schedule):
        return waiting_bytes(job, table, layers, counts), WeightPass.of(job, table, counts)
    nothing = np.zeros((len(counts), len(table)))
    return nothing, WeightPass(nothing, nothing, nothing)


def _highest(rank: RankBytes, to_compare: Iterable[Moment]) -> dict[str, Array]:
    """Categories of the rank's highest moment, plan by plan, and what is in flight then."""
    best: dict[str, Array] = {}
    highest = np.full(rank.bucketed.shape, -np.inf)
    for moment in to_compare:
        now = rank.at(moment)
        total = np.sum(list(now.values()), axis=0)
        now["in_flight"] = np.tile(rank.in_flight(moment)[:, None], (1, len(total)))
        better = total > highest
        highest = np.where(better, total, highest)
        best = {name: np.where(better, now[name], best.get(name, now[name])) for name in now}
    return best
