"""Changes of a plan that may make it fit: one, two, or more devices.

A plan enters; changed plans leave, each with what was changed in words. Whether they are legal and
fit is not looked at.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from parsim.plan import Plan, Recompute
from parsim.plan.names import WITHOUT_FLUSH
from parsim.plan.space import FEWEST, FEWEST_WORD
from parsim.plan.stages import Stage

Change = tuple[str, Plan]
"""What was changed in words, and the changed plan."""

SOME_LAYERS = f"recompute_layers={FEWEST_WORD}"
"""How a change is said whose number of layers is still to be found."""

TWO_VERSIONS = "pipedream_2bw"
"""The schedule that keeps two versions of its weights wherever a stage stands."""


def single_changes(plan: Plan) -> Iterator[Change]:
    """One change: recomputation, sharding, the host, versions, micro-batches or degrees."""
    yield from _recompute(plan)
    yield from _some_layers(plan)
    yield from _sharding(plan)
    yield from _off_hosts(plan)
    yield from _fewer_versions(plan)
    sizes = plan.pp, plan.v, plan.num_microbatches  # those of a user's own schedule
    for text, other in (*_smaller(plan), *_degrees(plan)):
        if plan.actions is None or (other.pp, other.v, other.num_microbatches) == sizes:
            yield (text, other)


def paired_changes(plan: Plan) -> Iterator[Change]:
    """Two changes at once, of different fields."""
    for first, once in single_changes(plan):
        if once.recompute_layers == FEWEST:  # found last, beside any other change
            continue
        for second, twice in single_changes(once):
            if first.split("=")[0] != second.split("=")[0]:
                yield (f"{first} and {second}", twice)


def _recompute(plan: Plan) -> Iterator[Change]:
    for level in Recompute:
        if level > plan.recompute:
            yield (
                f"recompute={level.name.lower()}",
                replace(plan, recompute=level, recompute_layers=0),
            )


def _some_layers(plan: Plan) -> Iterator[Change]:
    """Recompute some layers of each stage as a whole, no more than it takes."""
    if plan.recompute is not Recompute.FULL and plan.recompute_layers == 0:
        yield (SOME_LAYERS, replace(plan, recompute_layers=FEWEST))


def _sharding(plan: Plan) -> Iterator[Change]:
    for stage in range(plan.zero_stage + 1, 4):
        other = replace(plan, zero_stage=stage, dp_replicate=1, dp_shard=plan.dp)
        yield (f"zero_stage={stage}", other)
    if not plan.sequence_parallel:
        yield ("sequence_parallel=true", replace(plan, sequence_parallel=True))


def _off_hosts(plan: Plan) -> Iterator[Change]:
    """Leave on the device what the hosts may have no room for."""
    if plan.optimizer_offload:
        yield ("optimizer_offload=false", replace(plan, optimizer_offload=False))
    if plan.offload_layers:
        yield ("offload_layers=0", replace(plan, offload_layers=0, offload_modules=()))


def _fewer_versions(plan: Plan) -> Iterator[Change]:
    """Keep two versions of the weights on every stage, or update behind a flush with one."""
    if plan.schedule in WITHOUT_FLUSH and plan.actions is None:
        if plan.schedule != TWO_VERSIONS and plan.stages is None:
            yield (f"schedule={TWO_VERSIONS}", replace(plan, schedule=TWO_VERSIONS))
        yield ("schedule=1f1b", replace(plan, schedule="1f1b", stages=_in_step(plan.stages)))


def _in_step(stages: tuple[Stage, ...] | None) -> tuple[Stage, ...] | None:
    """The stages without updates that replicas need not wait for."""
    return stages and tuple(replace(stage, late_update=False) for stage in stages)


def _smaller(plan: Plan) -> Iterator[Change]:
    for factor in (2, 4, 8, 16):
        if plan.microbatch_size % factor == 0:
            size, count = plan.microbatch_size // factor, plan.num_microbatches * factor
            counts = plan.replica_microbatches
            other = replace(plan, microbatch_size=size, num_microbatches=count)
            if counts is not None:
                other = replace(other, replica_microbatches=tuple(n * factor for n in counts))
            yield (f"microbatch_size={size}", other)
    if plan.schedule == "gpipe":
        yield ("schedule=1f1b", replace(plan, schedule="1f1b"))


def _degrees(plan: Plan) -> Iterator[Change]:
    for factor in (2, 4, 8):
        if plan.dp % factor or plan.replica_microbatches is not None:
            continue
        for axis in ("tp", "pp"):
            degree = plan.degree(axis) * factor
            text = f"{axis}={degree} with dp={plan.dp // factor}"
            yield (text, _traded(plan, axis, degree, factor))


def _traded(plan: Plan, axis: str, degree: int, factor: int) -> Plan:
    """Take ranks from data parallelism; micro-batches grow to keep the global batch."""
    name = "dp_shard" if plan.zero_stage else "dp_replicate"
    rest = max(plan.degree(name) // factor, 1)
    sharded = plan.zero_stage if rest > 1 else 0
    values = {axis: degree, name: rest, "num_microbatches": plan.num_microbatches * factor}
    return replace(
        plan,
        **values,  # type: ignore[arg-type]
        zero_stage=sharded,
        stage_layers=None,
    )


def changes_of_more_devices(plan: Plan, factor: int, stage: int) -> Iterator[Change]:
    """The plan on so many times the devices: states shared out, or more devices for a replica."""
    least = replace(plan, recompute=Recompute.FULL, recompute_layers=0, replica_microbatches=None)
    if stage:
        shard = replace(least, dp_replicate=1, dp_shard=plan.dp * factor, zero_stage=stage)
        yield f"dp={shard.dp} and zero_stage={stage} and recompute=full", shard
    if plan.stages:
        return
    split = replace(least, tp=plan.tp * factor, sequence_parallel=True)
    yield f"tp={split.tp} and sequence_parallel=true and recompute=full", split
    if plan.actions is None:
        deep = replace(least, pp=plan.pp * factor, stage_layers=None)
        yield f"pp={deep.pp} and recompute=full", deep
