"""What ranks and hosts have in memory at the peak, whether it fits, and how sure that is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import inf
from typing import Any

from parsim.arrays import Array
from parsim.cluster.hardware import System
from parsim.cost.job import Job
from parsim.cost.software import software
from parsim.plan import Plan, precision
from parsim.sim.confidence.known_errors import Sizes
from parsim.sim.confidence.memory_fit import Fit, Margin, fit_of, margin_of, worst
from parsim.sim.confidence.memory_spread import MemorySpread, UnstatedBytes, plan_spread, unstated
from parsim.sim.fullest import FullestRank
from parsim.sim.memory.activation_parts import activation_parts, has_room, host_bytes
from parsim.sim.memory.reserved import reserved_bytes
from parsim.sim.prediction import RankUse
from parsim.sim.rank_use import groups_of_rank, rank_uses
from parsim.sim.recurrence.evaluate import Evaluation, step_memory
from parsim.sim.step.lanes import has_classes
from parsim.sim.step.priced_step import price_step

UNFUSED = "deepspeed-huggingface"
"""The stack whose layers have no fused kernels, as Hugging Face's have none by themselves."""


def memory_prediction(
    evaluation: Evaluation, sizes: Sizes, memory_margin: float | None
) -> dict[str, Any]:
    """What ranks and hosts hold and whether it fits, by field of the prediction.

    Args:
        evaluation: times and bytes.
        sizes: how far the plan is from the measured ones.
        memory_margin: share of the usable memory that must stay free for the plan to fit; None:
            what the predicted peak may be wrong by.
    """
    step, uses = evaluation.step, rank_uses(evaluation)
    plan = step.plan
    reserved = reserved_bytes(step.job.software, evaluation.peak, evaluation.uncached)
    kind, fullest = _fullest(evaluation, uses, reserved)
    by_rank = tuple(evaluation.memory_of(kind).at(rank, 0) for rank in range(plan.pp))
    spread = _memory_spread(step.job, plan, sizes, by_rank[fullest.rank], fullest.rank)
    highest, hosts = evaluation.peak.max(axis=1), _hosts(evaluation)
    fit, margin = _fit(evaluation, uses, hosts, memory_margin)
    return {
        "peak_allocated": tuple(float(size) for size in highest),
        "peak_reserved": tuple(reserved.max(axis=1).tolist()),
        "memory": by_rank[fullest.rank],
        "memory_by_rank": by_rank,
        "activations": _activations(evaluation, kind, fullest.rank),
        "peak_interval": spread.interval(fullest.peak_allocated),
        "memory_evidence": spread.evidence,
        "memory_basis": spread.basis,
        "fullest": fullest,
        "fit": fit,
        "margin": margin,
        "host_bytes": hosts[0][1],
        "host_memory": hosts[0][0].host_memory,
        "rank_uses": uses if has_classes(step) else (),
    }


def _fit(
    evaluation: Evaluation,
    uses: tuple[RankUse, ...],
    hosts: list[tuple[System, float]],
    memory_margin: float | None,
) -> tuple[Fit, Margin]:
    """Whether every rank fits its devices and every node's bytes its hosts, with which margin."""
    job, plan = evaluation.step.job, evaluation.step.plan
    margin = margin_of(job, plan, memory_margin)
    words = [fit_of(job.software, use.peak_allocated, use.usable, margin.share) for use in uses]
    words += [] if all(has_room(system, used) for system, used in hosts) else [Fit.TOO_LARGE]
    return worst(words), margin


def _memory_spread(
    job: Job, plan: Plan, sizes: Sizes, use: Mapping[str, float], rank: int
) -> MemorySpread:
    """How sure the peak of the fullest rank is, whose memory by category is `use`."""
    spread = plan_spread(job, plan, sizes)
    if spread.evidence != "unknown":
        return spread
    wide = plan.gradient_precision == "fp32"
    width = 4.0 if wide else float(precision(plan.precision).parameter)
    assumed = UnstatedBytes(
        gradients=use["gradients"],
        logits=use["logits"],
        width=width,
        eager=max(_eager_peak(job, plan, rank) - sum(use.values()), 0.0),
        gathered=_kept_whole(plan, use, 4.0 / width),
        ranks=plan.tp,
    )
    return unstated(spread, job.software, assumed)


def _kept_whole(plan: Plan, use: Mapping[str, float], wider: float) -> float:
    """Bytes more where FSDP keeps whole between micro-batches what the plan shards.

    In pipelines PyTorch's gathers once a step and reduces once (torchtitan's
    `pipeline_zero_stages`), elsewhere gradients add up whole with `no_sync` (stacks with
    `sums_whole`); they are then of fp32, `wider` times what is assumed.
    """
    if plan.zero_stage < 2 or plan.num_microbatches == 1:
        return 0.0
    gradients = (wider * plan.dp_shard - 1.0) * use["gradients"]
    gathered = use["parameters"] if plan.zero_stage == 3 and plan.pp > 1 else 0.0
    return gradients + (plan.dp_shard - 1.0) * gathered


def _eager_peak(job: Job, plan: Plan, rank: int) -> float:
    """Bytes at a rank's peak where the stack keeps what unfused kernels of layers read again."""
    stack = replace(job.software, eager_kept=software(UNFUSED).eager_kept)
    step = price_step(replace(job, software=stack), plan)
    return max(sum(use.at(rank, 0).values()) for use in step_memory(step).values())


def _fullest(
    evaluation: Evaluation, uses: tuple[RankUse, ...], reserved: Array
) -> tuple[int, FullestRank]:
    """The class of replicas whose memory is fullest, and the rank of it.

    `reserved` are the bytes that the allocator has on each rank of each class, (p, C).
    """
    use = max(uses, key=lambda use: use.peak_allocated / use.usable)
    kind = int(evaluation.step.classes.class_of[use.replicas[0]])
    groups = groups_of_rank(evaluation, use.pipeline_rank, kind)
    used = evaluation.step.job.software
    device = min((group.system.device for group in groups), key=used.usable_memory)
    return kind, FullestRank(
        rank=use.pipeline_rank,
        devices=use.devices,
        groups=use.groups,
        peak_allocated=use.peak_allocated,
        peak_reserved=float(reserved[use.pipeline_rank, kind]),
        context=used.context_memory(device),
        capacity=device.memory,
    )


def _hosts(evaluation: Evaluation) -> list[tuple[System, float]]:
    """Each kind of node with the bytes in its hosts, of the class that keeps the most there."""
    step = evaluation.step
    used = {}
    for group, system in step.systems().items():
        table, layers = step.pricing.table, step.pricing.layers(group)
        by_class = [
            host_bytes(step.job_on(group), table, layers, evaluation.memory_of(c), step.schedule(c))
            for c in range(step.num_classes)
        ]
        used[group] = (system, float(max(float(size[0]) for size in by_class)))
    return sorted(used.values(), key=lambda host: host[1] / (host[0].host_memory or inf))[::-1]


def _activations(evaluation: Evaluation, kind: int, rank: int) -> dict[str, float]:
    """What keeps the activations of a pipeline rank of a class of replicas, bytes."""
    step = evaluation.step
    group = step.group(0)
    return activation_parts(
        step.job_on(group),
        step.pricing.table,
        step.pricing.layers(group),
        evaluation.memory_of(kind),
        step.schedule(kind),
        rank,
    )
