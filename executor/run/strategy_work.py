"""The work of one rank under a strategy of its own: its replica, or its part of the model."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

import torch.distributed as dist

from executor.model.graph.dropout import without_dropout
from executor.model.laid import Parts
from executor.run.part import Part
from executor.run.run import optimizer_of
from executor.strategies.replays.log import Work
from executor.strategies.replica import Replica
from parsim.layout.laid import Laid
from parsim.model.reader import Description
from parsim.plan.strategies import BranchParallel, Layout
from parsim.sim.branches.placement import Placement
from parsim.sim.branches.priced import placement_of
from parsim.sim.layouts.priced import laid_out

T = TypeVar("T")


def strategy_work(part: Part, *, still: bool = False) -> Work:
    """What a rank trains, its clock at zero; `still` is without dropout."""
    options, start, plan = part.options, time.perf_counter(), part.scenario.fixed_plan()
    spec = part.still if still else part.scenario.model
    placement, laid = _placement(part), _laid(part, still=still)
    return Work(
        plan=plan,
        replica=_replica(part, spec, placement, laid),
        batches=part.of_rank,
        config=optimizer_of(part.scenario, options),
        rounds=options.last_step,
        clock=lambda: time.perf_counter() - start,
        slow=dict(part.scenario.jitter.slow_ranks),
        keep=options.eval_every,
        placement=placement,
        laid=laid,
    )


def _replica(
    part: Part, spec: Description, placement: Placement | None, laid: Laid | None
) -> Replica:
    """The model, or this rank's part of it."""
    seed, plan = part.options.seed, part.scenario.fixed_plan()
    if laid is not None:
        parts = Parts(laid, dist.get_rank())
        return Replica(laid.local, seed=seed, device=part.device, values=parts.values(seed))
    device = dist.get_rank() % plan.strategy.sharers
    only = None if placement is None else placement.nodes(device)
    return Replica(spec, seed=seed, device=part.device, values=part.values, only=only)


def _placement(part: Part) -> Placement | None:
    """Where the paths of the model are, as rank 0 finds it; None where every rank has all."""
    plan, job = part.scenario.fixed_plan(), part.scenario.job
    if not isinstance(plan.strategy, BranchParallel):
        return None
    return _of_first(lambda: placement_of(job, plan))


def _laid(part: Part, *, still: bool) -> Laid | None:
    """How the model is laid out, as rank 0 finds it; None where it is not."""
    plan, job = part.scenario.fixed_plan(), part.scenario.job
    if not isinstance(plan.strategy, Layout):
        return None
    laid: Laid = _of_first(lambda: laid_out(job, plan))
    return replace(laid, graph=without_dropout(laid.graph)) if still else laid


def _of_first(made: Callable[[], T]) -> T:
    """What rank 0 makes, on all ranks."""
    shared = [made() if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(shared)
    return shared[0]  # type: ignore[return-value]  # rank 0 has put it there
