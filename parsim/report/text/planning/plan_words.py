"""A plan in words, for those who do not read its label: who splits what, who has which samples."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from parsim.plan import Plan, Recompute
from parsim.plan.names import AUTO
from parsim.plan.strategies import DDP
from parsim.schedule.versions import Versions
from parsim.sim.stages.versions import versions_of
from parsim.units import counted

_SHARED: Final = (
    "",
    "optimizer states",
    "optimizer states and gradients",
    "optimizer states, gradients and parameters (FSDP)",
)
"""What replicas share out, by ZeRO stage."""

_AGAIN: Final = {
    Recompute.NONE: "",
    Recompute.SELECTIVE: ", attention computed again",
    Recompute.FULL: ", all layers computed again",
}
"""What backward computes again, by the plan's `recompute`."""


def plan_words(plan: Plan) -> str:
    """One line: replicas and what they share, what is split, the pipeline, the samples."""
    return "; ".join([*_replicas(plan), *_splits(plan), *_pipeline(plan), *_samples(plan)])


def _replicas(plan: Plan) -> Iterator[str]:
    if plan.stages is not None:
        return
    if plan.dp == 1:
        yield "one replica of the model"
        return
    words = f"{plan.dp} replicas of the model"
    if plan.strategy != DDP:
        words += f" by {plan.strategy.name}"
    if shared := _SHARED[plan.zero_stage]:
        among = "" if plan.dp_replicate == 1 else f", each among {plan.dp_shard}"
        words += f" that share out {shared}{among}"
    yield words


def _splits(plan: Plan) -> Iterator[str]:
    """What each replica's devices split among them."""
    if plan.tp > 1:
        tokens = " and the tokens between them" if plan.sequence_parallel else ""
        yield f"matrix products{tokens} split over {plan.tp} devices"
    if plan.cp > 1:
        yield f"sequences split over {plan.cp}"
    if plan.ep > 1:
        yield f"experts shared out to {plan.ep}"


def _pipeline(plan: Plan) -> Iterator[str]:
    if plan.pp == 1:
        return
    chunks = f" with {plan.v} chunks each" if plan.v > 1 else ""
    order = "an order found for it" if plan.schedule == AUTO else plan.schedule
    yield f"layers on {_devices(plan)} one after another{chunks} ({order})"
    if (versions := versions_of(plan)) is not None:
        yield _kept(versions)


def _devices(plan: Plan) -> str:
    """What a pipeline's layers are on: devices, or stages with some number of them each."""
    replicas = [stage.replicas for stage in plan.stages or ()]
    widths = [*plan.stage_tp] if replicas else [plan.tp]
    if max(replicas, default=1) == 1 and len({*widths}) == 1:
        return f"{plan.pp} devices"
    words = [f"{_listed(replicas)} replicas"] if max(replicas) > 1 else []
    words += [f"{_listed(widths)} devices"] if max(widths) > 1 else []
    return " of ".join([f"{plan.pp} stages", *words])


def _listed(counts: Sequence[int]) -> str:
    """Numbers of stages: 8, or 6 and 2, or 3, 2 and 1."""
    if len({*counts}) == 1:
        return f"{counts[0]}"
    return f"{', '.join(map(str, counts[:-1]))} and {counts[-1]}"


def _kept(versions: Versions) -> str:
    """How many versions of their weights stages keep, and how late their gradients are."""
    stages = range(versions.pp)
    kept, late = ([of(stage) for stage in stages] for of in (versions.kept, versions.delay))
    versions_kept, updates = _between(kept, "version"), _between(late, "update")
    return f"stages keep {versions_kept} of their weights, gradients are {updates} late"


def _between(counts: Sequence[int], noun: str) -> str:
    """Numbers that fall from stage to stage: 8 to 1 versions, or 2 versions where all are alike."""
    most, least = max(counts), min(counts)
    return counted(most, noun) if most == least else f"{most} to {least} {noun}s"


def _samples(plan: Plan) -> Iterator[str]:
    counts = sorted({*plan.microbatches})
    count = counted(counts[0], "micro-batch").replace("batchs", "batches")
    if len(counts) > 1:
        count = f"{counts[0]} to {counts[-1]} micro-batches"
    again = {
        Recompute.SELECTIVE: ", attention computed again",
        Recompute.FULL: ", all layers computed again",
    }
    yield f"{count} of {counted(plan.microbatch_size, 'sample')}{again.get(plan.recompute, '')}"
