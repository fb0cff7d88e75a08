"""Shapes of plans: degrees, micro-batch, schedule and chunks, of every value a space allows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import product
from math import gcd

from parsim.cost.job import Job
from parsim.plan import PlanSpace
from parsim.plan.names import SPLIT
from parsim.plan.rules.degrees import divisors, is_splittable, tensor_splits
from parsim.plan.rules.stages import most_stages
from parsim.plan.space import Between, chosen
from parsim.schedule import CHUNKED, V_SHAPED


@dataclass(frozen=True, slots=True)
class Degrees:
    """How the ranks are divided, and how many sequences a micro-batch has."""

    tp: int
    pp: int
    cp: int
    dp: int
    ep: int
    microbatch_size: int


def all_degrees(job: Job, space: PlanSpace) -> Iterator[Degrees]:
    """Degrees and micro-batches of a space."""
    world = job.cluster.num_devices
    heads = max(tensor_splits(job.model).values(), default=world)
    heads = heads if is_splittable(job.model) else 1
    fixed, pipelines = None, space.pp
    if space.common.actions is not None:  # a schedule of the user's own has its sizes
        pipelines, fixed = (space.common.pp,), space.common.num_microbatches
    tensor = chosen(space.tp, divisors(world, heads))
    for tp, cp in product(tensor, context_degrees(job, space)):
        for pp in chosen(pipelines, divisors(world, most_stages(job.model))):
            if world % (tp * pp * cp):
                continue
            dp = world // (tp * pp * cp)
            if space.global_batch_size % dp or (space.dp is not None and dp not in space.dp):
                continue
            count = space.global_batch_size // dp
            for size in chosen(space.microbatch_size, divisors(count)):
                if count % size or fixed not in (None, count // size):
                    continue
                for ep in _expert_degrees(job, space, dp * cp * tp):
                    yield Degrees(tp, pp, cp, dp, ep, size)


def context_degrees(job: Job, space: PlanSpace) -> Iterable[int]:
    """Degrees of context parallelism: those asked for, or all that cut the sequence."""
    attention = job.model.attention
    if attention is None or not attention.fused:
        return chosen(space.cp, (1,))
    pieces = 2 if attention.causal else 1
    degrees = divisors(job.cluster.num_devices)
    legal = [cp for cp in degrees if cp == 1 or job.model.tokens % (cp * pieces) == 0]
    return chosen(space.cp, legal)


def _expert_degrees(job: Job, space: PlanSpace, ranks: int) -> Iterable[int]:
    """Degrees of expert parallelism on a stage's ranks: all that are legal, or those asked for."""
    experts = job.model.experts
    return chosen(space.ep, (1,) if experts is None else divisors(gcd(experts.count, ranks)))


def schedules(job: Job, space: PlanSpace) -> tuple[str, ...]:
    """Names of the schedules to look at: those asked for, or all that the software has."""
    return job.software.schedules if space.schedule is None else space.schedule


def offloads(
    job: Job, space: PlanSpace, pp: int, schedule: str, v: int, *, hosts: bool
) -> tuple[int, ...]:
    """Layers of each stage that move their activations to the host.

    Those asked for, none where nothing is said; of any number none, half and all of a stage's,
    where `hosts` take any.
    """
    asked = space.offload_layers
    if asked is None:
        return (0,)
    most = -(-job.model.num_layers // (pp * v))
    if (pp > 1 and schedule in SPLIT) or not hosts:
        most = 0
    legal = {0, -(-most // 2), most} if asked == Between() else range(most + 1)
    return tuple(dict.fromkeys(chosen(asked, sorted(legal))))


def chunks(job: Job, space: PlanSpace, pp: int) -> Iterator[tuple[str, int]]:
    """Schedules and their chunk counts for a pipeline of pp ranks."""
    if space.common.actions is not None:
        yield (space.common.schedule, space.common.v)
        return
    if pp == 1:
        yield ("1f1b", 1)
        return
    for schedule in schedules(job, space):
        if schedule in CHUNKED:
            counts = chosen(space.v, range(2, most_stages(job.model) // pp + 1))
            yield from ((schedule, v) for v in counts if v > 1)
            continue
        v = 2 if schedule in V_SHAPED else 1
        if space.v is None or v in space.v:
            yield (schedule, v)
