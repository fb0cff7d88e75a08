"""Why the best plan is not another one: where steps go, what a wish costs, or what forbids it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from parsim.cost.job import Job
from parsim.cost.layer.passes import Pass
from parsim.cost.legal import unsupported
from parsim.cost.step.layer_table import LayerTable
from parsim.cost.step.stage_passes import backward_times, forward_times
from parsim.cost.step.stages import layer_counts
from parsim.cost.step.step import deeper_pass, stage_cut
from parsim.errors import NoFeasiblePlan
from parsim.plan import Plan, PlanSpace, PlanTable
from parsim.plan.rules.violation import violation
from parsim.plan.space import FEWEST
from parsim.planner.ranked import Ranked
from parsim.planner.result import Progress
from parsim.planner.search import search
from parsim.planner.space import enumerate_plans
from parsim.planner.space.left_out import by_rule
from parsim.planner.why.pins import Pins, pin_words, pinned
from parsim.results import Result
from parsim.sim.recurrence.evaluate import evaluate
from parsim.sim.simulate import simulate
from parsim.sim.step_breakdown import breakdown
from parsim.units import format_seconds

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


SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Reasons(Result):
    """The best plan, and the best one that has what was wished.

    `parts` and `wished_parts` sum to the two steps, seconds. Where no plan has what was wished,
    `wished` is None and `refusal` says which rule or memory forbids it, `rules` how many plans each
    rule refused. `ruled_out` is set where the wish is outside of the scenario's own search block.
    """

    best: Ranked
    wish: str
    wished: Ranked | None
    parts: Mapping[str, float]
    wished_parts: Mapping[str, float]
    refusal: str = ""
    rules: tuple[tuple[str, int], ...] = ()
    ruled_out: str = ""

    @property
    def headline(self) -> str:
        """What the wish costs."""
        if self.wished is None:
            return f"{self.wish}: {self.refusal}"
        more = self.wished.step_time / self.best.step_time - 1.0
        return (
            f"{self.wish}: {format_seconds(self.wished.step_time)}, {100 * more:+.1f} % of "
            f"{format_seconds(self.best.step_time)}"
        )

    def to_json(self) -> dict[str, Any]:
        """The document that `parsim why --json` prints."""
        return {
            "schema_version": SCHEMA_VERSION,
            "best": self.best.to_json(),
            "wish": self.wish,
            "wished": self.wished and self.wished.to_json(),
            "parts_s": dict(self.parts),
            "wished_parts_s": dict(self.wished_parts),
            "refusal": self.refusal,
            "broken_rules": dict(self.rules),
            "ruled_out": self.ruled_out,
        }

    def records(self) -> list[dict[str, Any]]:
        """One row per part of the two steps."""
        return [
            {"part": name, "best_s": first, "wished_s": second}
            for name, first, second in differences(self.parts, self.wished_parts)
        ]


def reasons(job: Job, space: PlanSpace, pins: Pins, *, progress: Progress | None = None) -> Reasons:
    """Compare the best plan of a space with the best one that has what is wished.

    Args:
        job: model, cluster, software.
        space: allowed values; what is wished is looked at even where the space leaves it out.
        pins: fields of a plan and the value each is to have, see `read_pins`.
        progress: called with (plans done, plans in all), for either search.

    Raises:
        PlanError: the space cannot hold a legal plan.
        NoFeasiblePlan: no plan of the space fits.
    """
    best = search(job, space, top=1, progress=progress).plans[0]
    told = Reasons(
        best=best,
        wish=pin_words(pins),
        wished=None,
        parts=step_parts(job, best.plan),
        wished_parts={},
        ruled_out=_ruled_out(space, pins),
    )
    # what is wished is of plans whose stages are alike, as its fields are
    other = replace(pinned(space, pins), unequal_stages=False)
    try:
        wished = search(job, other, top=1, progress=progress).plans[0]
    except NoFeasiblePlan as error:
        refusal = _forbidden(job, space.global_batch_size, pins) or str(error)
        return replace(told, refusal=refusal, rules=_rules(job, other))
    return replace(told, wished=wished, wished_parts=step_parts(job, wished.plan))


def _forbidden(job: Job, batch: int, pins: Pins) -> str | None:
    """The rule that forbids the pinned degrees with any others, as one plan would be told."""
    degrees = {name: pins.get(name, 1) for name in ("tp", "pp", "cp", "ep")}
    rest = degrees["tp"] * degrees["pp"] * degrees["cp"]
    probe = Plan(
        **degrees,
        dp_replicate=pins.get("dp", max(job.cluster.num_devices // rest, 1)),
        num_microbatches=degrees["pp"],
        sequence_parallel=job.model.experts is not None and degrees["tp"] > 1,
    )
    message = violation(probe, job.model, job.cluster) or unsupported(job, probe)
    if message is None and batch % probe.dp:
        return f"dp={probe.dp} (devices / (tp x pp x cp)) does not divide global_batch_size={batch}"
    return message


def _rules(job: Job, space: PlanSpace) -> tuple[tuple[str, int], ...]:
    """Which rules refuse plans of a space, and how many."""
    listed = enumerate_plans(job, space)
    return tuple((rule.words, rule.plans) for rule in by_rule(listed.reasons))


def _ruled_out(space: PlanSpace, pins: Pins) -> str:
    """Which pins the space itself leaves out."""
    outside = [
        f"{name}={value}"
        for name, value in pins.items()
        if (allowed := space.allowed(name)) is not None
        and allowed != (FEWEST,)
        and value not in allowed
    ]
    return ", ".join(outside)
