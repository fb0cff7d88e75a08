"""Where a plan's step goes, with what nothing hides of the communication by who communicates."""

from __future__ import annotations

from collections.abc import Mapping

from parsim.cost.job import Job
from parsim.cost.layer.passes import Pass
from parsim.cost.step.layer_table import LayerTable
from parsim.cost.step.stage_times import backward_times, forward_times
from parsim.cost.step.stages import layer_counts
from parsim.cost.step.step import deeper_pass, stage_cut
from parsim.plan import Plan, PlanTable
from parsim.sim.recurrence.evaluate import evaluate
from parsim.sim.simulate import simulate
from parsim.sim.step_breakdown import breakdown

EXPOSED = "exposed_communication"


def step_parts(job: Job, plan: Plan) -> dict[str, float]:
    """Parts that sum to the step, seconds: as `breakdown`, exposed communication by group.

    Within layers, collectives of tensors (or of the context, or both where a plan has both) and
    those of experts are told apart by their shares of what the layers expose; what the actions
    expose beyond the layers are ZeRO's gathers and reductions.
    """
    if plan.runs_as_tasks:
        parts = dict(simulate(job, plan).breakdown)
    else:
        parts = breakdown(evaluate(job, plan))
    exposed = parts.pop(EXPOSED)
    if job.mixed or plan.runs_as_tasks:
        return {**parts, "exposed communication": exposed}
    layers = min(_in_layers(job, plan), exposed)
    experts = layers * _routed_share(job, plan)
    split = {
        _border_name(plan): layers - experts,
        "exposed: experts": experts,
        "exposed: data-parallel shards": exposed - layers,
    }
    return {**parts, **{name: seconds for name, seconds in split.items() if seconds > 0.0}}


def _border_name(plan: Plan) -> str:
    """Who communicates at the borders of a layer's matrices."""
    groups = [name for name, degree in (("tensor", plan.tp), ("context", plan.cp)) if degree > 1]
    return f"exposed: {' and '.join(groups) or 'layers'}"


def _in_layers(job: Job, plan: Plan) -> float:
    """Exposed collectives of all layers in a step, mean over pipeline ranks, seconds."""
    table = PlanTable.of([plan])
    layers = LayerTable.of(job, table)
    counts = layer_counts(job.model, stage_cut(job, table))
    deeper = deeper_pass(job, table, layers)
    both = (forward_times(job, layers, counts), backward_times(job, layers, counts, deeper))
    exposed = sum(float(times.exposed.sum()) for times in both)
    return exposed * plan.num_microbatches / plan.pp


def _routed_share(job: Job, plan: Plan) -> float:
    """Share of the layers' exposed collectives that moves tokens to experts and back."""
    if job.model.experts is None:
        return 0.0
    table = PlanTable.of([plan])
    layers = LayerTable.of(job, table)
    counts = layer_counts(job.model, stage_cut(job, table)).sum(axis=0)

    def total(passes: list[Pass]) -> float:
        return float(sum(n * p.exposed[0] for n, p in zip(counts, passes, strict=True)))

    every = total([kind.forward for kind in layers.kinds])
    every += total([kind.backward for kind in layers.kinds])
    routed = 2.0 * total([kind.routed for kind in layers.kinds])  # forward, and backward too
    return min(routed / every, 1.0) if every > 0.0 else 0.0


def differences(
    first: Mapping[str, float], second: Mapping[str, float]
) -> list[tuple[str, float, float]]:
    """Each part with its seconds in two steps, that which differs most first."""
    names = dict.fromkeys([*first, *second])
    rows = [(name, first.get(name, 0.0), second.get(name, 0.0)) for name in names]
    return sorted(rows, key=lambda row: -abs(row[2] - row[1]))
