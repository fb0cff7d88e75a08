"""Rules of stages: the cut of a model into them, and stages with replicas of their own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain

from parsim.cluster.hardware import Cluster
from parsim.model.model import Model
from parsim.plan.names import AUTO
from parsim.plan.record import Plan
from parsim.plan.rules.degrees import divisors, listed
from parsim.plan.stages import Stage, least_warmups
from parsim.plan.strategies import DDP

DEEPEST = 100
"""Forwards that a stage may begin with, where it needs no more and has no more micro-batches."""


def stage_rules(plan: Plan, model: Model, cluster: Cluster) -> str | None:
    """The first thing that is wrong with stages of their own, or None."""
    if plan.stages is None:
        return None
    checks = chain(
        _beside(plan, cluster),
        _counts(plan, plan.stages),
        _tensor(plan, model),
        _nodes(plan, cluster),
        _warmups(plan, plan.stages),
        _late(plan, plan.stages),
    )
    return next((f"stages{message}" for message in checks), None)


def _beside(plan: Plan, cluster: Cluster) -> Iterator[str]:
    """What stages with replicas of their own cannot stand beside."""
    for name in ("dp_replicate", "dp_shard", "cp", "ep", "v"):
        value = getattr(plan, name)
        if value > 1:
            yield (
                f" say how many replicas each stage has, but {name}={value} is for all alike; "
                f"use {name}=1"
            )
    if plan.schedule not in ("1f1b", "pipedream", AUTO) and not plan.from_file:
        yield (
            f" are for schedule='1f1b', 'pipedream', 'auto' or a file, whose order replicas can "
            f"share, but schedule={plan.schedule!r}; leave schedule out"
        )
    if plan.stage_layers is not None:
        yield " say how many layers each stage has; leave stage_layers out"
    if plan.strategy != DDP or plan.replica_microbatches is not None:
        other = "strategy" if plan.strategy != DDP else "replica_microbatches"
        yield f" cannot stand beside {other}; leave {other} out"
    if cluster.groups:
        yield " are for nodes of one kind; this cluster has several groups of nodes"
    if len(plan.stages or ()) != plan.pp:
        yield f" has {len(plan.stages or ())} entries, but pp={plan.pp}; leave pp out"
    if plan.pp < 2:
        yield " has one entry, which is plain data parallelism; use dp"


def _counts(plan: Plan, stages: Sequence[Stage]) -> Iterator[str]:
    """Numbers of each stage that nothing can be shared out to."""
    for number, stage in enumerate(stages):
        if stage.replicas < 1:
            yield f"[{number}].replicas={stage.replicas} must be at least 1"
        elif plan.num_microbatches % stage.replicas:
            allowed = listed(divisors(plan.num_microbatches))
            yield (
                f"[{number}].replicas={stage.replicas} does not divide num_microbatches="
                f"{plan.num_microbatches}; allowed: {allowed}"
            )
        again = stage.recompute_layers
        if again is not None and not 0 <= again <= stage.layers:
            yield (
                f"[{number}].recompute_layers={again} of layers={stage.layers}; allowed: 0 to "
                f"{stage.layers}"
            )


def _tensor(plan: Plan, model: Model) -> Iterator[str]:
    """What stages with tensor-parallel degrees of their own cannot have."""
    degrees = plan.stage_tp
    if len({*degrees}) == 1 and degrees[0] == plan.tp:
        return
    where = f" have tp={list(degrees)}"
    if plan.sequence_parallel:
        yield (
            f"{where}: with sequence_parallel=true their ranks hold other tokens, which no message "
            f"shares out anew; use sequence_parallel=false, or one tp"
        )
    if plan.scatter_p2p:
        yield f"{where}: scatter_p2p=true sends shares of one tp; use scatter_p2p=false, or one tp"
    if model.tied_embeddings and degrees[0] != degrees[-1]:
        yield (
            f"{where}: the first and the last one cut {model.name}'s tied table differently; use "
            f"tied_embeddings: false, or the same tp for both"
        )
    if model.experts is not None:
        yield f"{where}: experts are shared out to ranks of one tp; use one tp"


def _nodes(plan: Plan, cluster: Cluster) -> Iterator[str]:
    """Tensor-parallel ranks that are on more nodes than they need be, behind stages of other tp."""
    if len({*plan.stage_tp}) == 1:
        return
    first, size = 0, cluster.system.devices_per_node
    for number, (stage, tp) in enumerate(zip(plan.stages or (), plan.stage_tp, strict=True)):
        behind = first + stage.replicas * tp
        for begin in range(first, behind, tp):
            if (begin + tp - 1) // size - begin // size + 1 > -(-tp // size):
                yield (
                    f"[{number}].tp={tp}: its ranks {begin} to {begin + tp - 1} lie across nodes "
                    f"of {size} devices; put stages of larger tp first, or use other replicas"
                )
        first = behind


def _warmups(plan: Plan, stages: Sequence[Stage]) -> Iterator[str]:
    """Fewer forwards at the start than the stages behind wait for, or more than may ever help."""
    given = [stage.warmup for stage in stages]
    needed = least_warmups([stage.replicas for stage in stages], given)
    for number, (begun, least) in enumerate(zip(given, needed, strict=True)):
        if begun is not None and begun < least:
            yield (
                f"[{number}].warmup={begun} starves the stages behind it; use at least {least}, "
                f"or leave it out"
            )
        most = max(DEEPEST, least, plan.num_microbatches // stages[number].replicas)
        if begun is not None and begun > most:
            yield (
                f"[{number}].warmup={begun} keeps as many micro-batches at once; use at most "
                f"{most}, or leave it out"
            )


def _late(plan: Plan, stages: Sequence[Stage]) -> Iterator[str]:
    """Updates a round late where there is no sum to wait for, or a flush that all wait for."""
    late = [number for number, stage in enumerate(stages) if stage.late_update]
    for number in late:
        if plan.schedule != "pipedream":
            yield (
                f"[{number}].late_update=true lets replicas go on past an update, which "
                f"schedule={plan.schedule!r} ends with; use schedule='pipedream', or leave it out"
            )
        if stages[number].replicas == 1:
            yield (
                f"[{number}].late_update=true waits for gradients of other replicas, but "
                f"replicas=1; leave it out"
            )


def most_stages(model: Model) -> int:
    """Stages that a pipeline may have at most: one a layer, and one for each end with its own."""
    return model.num_layers + len(_end_stages(model))


def _end_stages(model: Model) -> list[str]:
    """What a stage without layers holds: the even cut leaves the last one so first."""
    return [layer.name for layer in (*model.before, *model.behind) if model.behind][:2]


def cut_rules(plan: Plan, model: Model, cluster: Cluster) -> str | None:
    """Every stage has something to hold, and a cut names each layer once."""
    layers, ends = model.num_layers, _end_stages(model)
    if plan.num_stages > layers + len(ends):
        parts = ", ".join([f"{layers} layers", *ends])
        return (
            f"more stages than layers: pp={plan.pp} x v={plan.v} = {plan.num_stages} stages for "
            f"{parts}; use pp x v <= {layers + len(ends)}"
        )
    cut, name = plan.cut, "stage_layers" if plan.stages is None else "layers of stages"
    if cut is None:
        return None
    if len(cut) != plan.num_stages:
        return (
            f"{name} has {len(cut)} entries, but pp={plan.pp} x v={plan.v} needs "
            f"{plan.num_stages}; write as many, or leave it out"
        )
    if min(cut) < 0 or sum(cut) != layers:
        return (
            f"{name} sums to {sum(cut)}, but the model has {layers} layers; "
            f"entries must be >= 0 and sum to {layers}"
        )
    return None


def most_layers(plan: Plan, model: Model) -> int:
    """Layers of the largest stage, of an even cut where the plan says none."""
    return max(plan.cut or (-(-model.num_layers // plan.num_stages),))
