"""What surrounds a plan, changed by a fifth: bandwidths, sequence, batch, devices.

Batch and devices take no value: a batch goes to the nearest one of whole micro-batches on the best
plan's replicas, devices to the nearest number of nodes that more or fewer of its replicas fill and
that shares out the batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

from parsim.cluster.hardware import System
from parsim.cost.job import Job
from parsim.errors import ModelError
from parsim.model.transformer import TransformerSpec, build_transformer
from parsim.plan import Plan, PlanSpace
from parsim.plan.rules.degrees import divisors
from parsim.units import percent

SHARE = 0.2
FACTORS = (1.0 - SHARE, 1.0 + SHARE)
TOKENS = 256
"""Sequences are multiples of so many tokens."""

World = tuple[str, Job, PlanSpace]
"""What is different, the job then and its space."""


def surroundings(job: Job, spec: TransformerSpec, space: PlanSpace, best: Plan) -> Iterator[World]:
    """Each changed surrounding of a job whose best plan is known."""
    for factor in FACTORS:
        sign = percent(factor - 1.0, signed=True, digits=0)
        if job.cluster.num_nodes > 1:
            yield f"network {sign}", on_network(job, factor), space
        yield f"links in a node {sign}", _with_system(job, partial(_intra, factor)), space
        length = max(round(spec.seq_len * factor / TOKENS) * TOKENS, TOKENS)
        try:
            model = build_transformer(replace(spec, seq_len=length))
            yield f"sequence of {length}", replace(job, model=model), space
        except ModelError:
            pass
        yield from _batch(job, space, best, factor)
        yield from _nodes(job, space, best, factor)


def _batch(job: Job, space: PlanSpace, best: Plan, factor: float) -> Iterator[World]:
    """The nearest other batch of whole micro-batches, in whole rounds of chunked pipelines."""
    unit = best.dp * best.microbatch_size * (best.pp if best.v > 1 else 1)
    before = space.global_batch_size
    steps = max(1, round(SHARE * before / unit))
    batch = before + (steps if factor > 1.0 else -steps) * unit
    if batch <= 0:
        return
    sized = replace(job, global_batch_size=batch if job.global_batch_size else None)
    words = f"batch of {batch} ({percent(batch / before - 1.0, signed=True, digits=0)})"
    yield words, sized, replace(space, global_batch_size=batch)


def _nodes(job: Job, space: PlanSpace, best: Plan, factor: float) -> Iterator[World]:
    """The nearest other number of nodes that replicas of the best plan fill."""
    before, each = job.cluster.num_nodes, job.system.devices_per_node
    rest = best.tp * best.pp * best.cp
    fillable = [
        rest * dp // each
        for dp in divisors(space.global_batch_size // best.microbatch_size)
        if rest * dp % each == 0 and (dp > best.dp if factor > 1.0 else dp < best.dp)
    ]
    if not fillable:
        return
    nodes = min(fillable, key=lambda count: abs(count - factor * before))
    if nodes > 1 and job.system.network is None:
        return
    cluster = replace(job.cluster, num_nodes=nodes, placement=None, failed=())
    change = percent(nodes / before - 1.0, signed=True, digits=0)
    words = f"{nodes} node{'s' if nodes > 1 else ''} ({change})"
    yield words, replace(job, cluster=cluster), space


def on_network(job: Job, factor: float) -> Job:
    """The job on a network of so many times the bandwidth."""
    return _with_system(job, partial(_network, factor))


def _with_system(job: Job, change: Callable[[System], System]) -> Job:
    return replace(job, cluster=replace(job.cluster, system=change(job.system)))


def _network(factor: float, system: System) -> System:
    if system.network is None:
        return system
    bandwidth = system.network.nic_bandwidth * factor
    return replace(system, network=replace(system.network, nic_bandwidth=bandwidth))


def _intra(factor: float, system: System) -> System:
    return replace(system, intra=replace(system.intra, bandwidth=system.intra.bandwidth * factor))
