"""When a plan does not fit: by how much, on which rank, and the least change that would."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from parsim.cost.job import Job
from parsim.cost.legal import illegal
from parsim.model.adapters import adapters_note
from parsim.plan import Plan
from parsim.plan.rules.stages import most_layers
from parsim.plan.space import FEWEST
from parsim.planner.changes import (
    SOME_LAYERS,
    changes_of_more_devices,
    paired_changes,
    single_changes,
)
from parsim.sim import Prediction, simulate
from parsim.sim.confidence.memory_fit import Fit
from parsim.sim.stages.versions import versions_of
from parsim.units import format_bytes


def shortage_message(job: Job, plan: Plan, margin: float | None = None) -> str:
    """Explain a plan that does not fit the devices.

    `margin` is the share of memory that must stay free for a change to fit, where one is stated.
    """
    return f"this plan does not fit: {plan.label()} {shortage(job, plan, margin)}"


def nearest_miss_message(job: Job, plan: Plan, margin: float | None) -> str:
    """Explain a search that found nothing by the plan that comes nearest."""
    return f"nothing fits: the nearest plan, {plan.label()}, {shortage(job, plan, margin)}"


def shortage(job: Job, plan: Plan, margin: float | None) -> str:
    """By how much a plan is too large, on which rank, why, and the least change that fits."""
    prediction = simulate(job, plan)
    fullest = prediction.fullest
    fits = fullest.peak_allocated <= fullest.usable
    words = (_in_hosts(prediction) if fits else "") or _on_device(prediction)
    kept = _versions_words(job, plan, prediction.fullest.rank)
    return f"{words}{kept}; {_advice(job, plan, margin)}"


def _in_hosts(prediction: Prediction) -> str:
    """By how much the hosts of a node are too small; empty where they are not."""
    used, room = prediction.host_bytes, prediction.host_memory
    if room is None or used <= room:
        return ""
    short = format_bytes(used - room)
    return (
        f"needs {format_bytes(used)} in the hosts of a node, {short} more than {format_bytes(room)}"
    )


def _on_device(prediction: Prediction) -> str:
    """By how much the fullest rank's device is too small, and what takes the most of it."""
    fullest = prediction.fullest
    need, usable, device = fullest.peak_allocated, fullest.usable, "+".join(fullest.devices)
    if prediction.rank_uses:
        device += f" of nodes {'+'.join(fullest.groups)}"
    largest = max(prediction.memory, key=lambda name: prediction.memory[name])
    return (
        f"needs {format_bytes(need)} on pipeline rank {fullest.rank}, "
        f"{format_bytes(need - usable)} more than {format_bytes(usable)} ({device}); "
        f"its largest part is {largest}, {format_bytes(prediction.memory[largest])}"
    )


def _versions_words(job: Job, plan: Plan, stage: int) -> str:
    """How many versions of its weights a stage keeps, and their bytes; empty where it is one."""
    versions = versions_of(plan)
    if versions is None or versions.kept(stage) == 1:
        return ""
    # loads the events, which no other search needs
    from parsim.sim.stages.plan_prices import PlanPrices

    kept = versions.kept(stage)
    size = format_bytes(kept * float(PlanPrices(job, plan).prices().weights[stage]))
    return f"; {kept} versions of its weights are {size} of it"


def _advice(job: Job, plan: Plan, margin: float | None) -> str:
    """Least change: the fastest plan that fits among single changes, then among pairs."""
    for changes in (single_changes(plan), paired_changes(plan)):
        working = [
            (prediction.step_time, _with_number(text, other))
            for text, changed in changes
            if (other := _with_fewest(job, plan, changed, margin)) is not None
            and _offered(job, plan, other)
            and (prediction := _fitting(job, other, margin))
        ]
        if working:
            step, text = min(working)
            return f"least change that fits: {text} (step {step:.3g} s)"
    more = None if job.mixed else _more_devices(job, plan, margin)
    none = "no single or double change of recompute, sharding, micro-batch or degrees fits"
    return "; ".join([more or none, *_other_ways(job, plan, margin)])


def _other_ways(job: Job, plan: Plan, margin: float | None) -> Iterator[str]:
    """What saves states without more devices: the host's memory, or training less of the model."""
    other = replace(plan, optimizer_offload=True)
    if not plan.optimizer_offload and illegal(job, other) is None:
        prediction = simulate(job, other, memory_margin=margin)
        if prediction.fit is not Fit.TOO_LARGE:
            words = "fits" if prediction.fit is Fit.FITS else "is tight"
            yield f"optimizer_offload=true {words} (step {prediction.step_time:.3g} s)"
    if _states_alone(simulate(job, plan)) and job.model.tokens > 1 and not adapters_note(job.model):
        yield "model.lora_rank=16 would train adapters alone (LoRA)"


def _states_alone(prediction: Prediction) -> bool:
    """Whether a plan would fit but for gradients and optimizer states."""
    states = prediction.memory.get("gradients", 0.0) + prediction.memory.get("optimizer", 0.0)
    return prediction.fullest.peak_allocated - states <= prediction.fullest.usable


def _with_fewest(job: Job, plan: Plan, changed: Plan, margin: float | None) -> Plan | None:
    """A changed plan that asks for the fewest recomputed layers with so many that it fits.

    Found by halves: one layer fewer does not fit. None where no number below all layers does; any
    other plan as it is.
    """
    if changed.recompute_layers != FEWEST:
        return changed
    few, many = 0, most_layers(changed, job.model) - 1
    several = replace(changed, recompute_layers=max(many, 1))
    if many < 1 or not _offered(job, plan, several) or not _fitting(job, several, margin):
        return None
    while many - few > 1:
        middle = (few + many) // 2
        fits = _fitting(job, replace(changed, recompute_layers=middle), margin)
        few, many = (few, middle) if fits else (middle, many)
    return replace(changed, recompute_layers=many)


def _with_number(text: str, plan: Plan) -> str:
    """A change in words, with the number of layers that was found for it."""
    return text.replace(SOME_LAYERS, f"recompute_layers={plan.recompute_layers}")


def _offered(job: Job, plan: Plan, other: Plan) -> bool:
    """Whether a changed plan is legal, and its ZeRO stage the plan's own or one of the stack."""
    stages = (plan.zero_stage, *job.software.zero_stages_with(other.pp))
    return other.zero_stage in stages and illegal(job, other) is None


def _fitting(job: Job, plan: Plan, margin: float | None) -> Prediction | None:
    """The prediction of a plan that fits, None for one that is tight or does not."""
    prediction = simulate(job, plan, memory_margin=margin)
    return prediction if prediction.fit is Fit.FITS else None


def _more_devices(job: Job, plan: Plan, margin: float | None) -> str | None:
    """The fewest nodes on which it fits; None where that does not help or cannot be joined."""
    if job.system.network is None:
        return None
    stage = max(job.software.zero_stages_with(plan.pp), default=0)
    for factor in (2, 4, 8, 16, 32, 64):
        nodes = job.cluster.num_nodes * factor
        cluster = replace(job.cluster, num_nodes=nodes)
        for text, other in changes_of_more_devices(plan, factor, stage):
            bigger = replace(job, cluster=cluster, global_batch_size=other.global_batch_size)
            if illegal(bigger, other) is None and (fitting := _fitting(bigger, other, margin)):
                how = f"(step {fitting.step_time:.3g} s)"
                if other.global_batch_size != plan.global_batch_size:
                    how = f"(global batch {other.global_batch_size})"
                return f"least change that fits: {nodes} nodes with {text} {how}"
    return None
