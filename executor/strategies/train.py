"""Trains with a plan's strategy: which function runs which, and what cannot be run here."""

from __future__ import annotations

from collections.abc import Callable

from executor.strategies.asynchronous_server import asynchronous_server
from executor.strategies.gossip import gossip
from executor.strategies.local_steps import diloco, local_sgd
from executor.strategies.log import Trained, Work
from executor.strategies.parameter_server import parameter_server
from executor.strategies.replica import Recipe
from parsim.errors import PlanError
from parsim.plan import Plan
from parsim.plan.strategies import (
    AllReduce,
    AsynchronousServer,
    DiLoCo,
    Gossip,
    LocalSGD,
    ParameterServer,
)

RUNNERS: dict[str, Callable[[Work, Recipe], Trained]] = {
    ParameterServer.name: parameter_server,
    AsynchronousServer.name: asynchronous_server,
    Gossip.name: gossip,
    LocalSGD.name: local_sgd,
    DiLoCo.name: diloco,
}
"""Who runs a strategy, by its name."""


def check_strategy(plan: Plan) -> None:
    """Refuse what would not be what the plan says.

    Raises:
        PlanError: a strategy or an option that only the simulator has.
    """
    strategy = plan.strategy
    if isinstance(strategy, AllReduce):
        if strategy.algorithm is not None:
            raise PlanError(
                f"strategy.algorithm={strategy.algorithm} cannot be forced here; leave it out, or "
                f"set NCCL_ALGO where NCCL reduces"
            )
        return
    if strategy.name not in RUNNERS:
        raise PlanError(
            f"strategy.name={strategy.name} can be simulated but not run yet; allowed: ddp, "
            f"{', '.join(RUNNERS)}"
        )
    usual = {"backup_workers": 0, "compression": 1.0}
    for name, value in usual.items():
        given = getattr(strategy, name, value)
        if given != value:
            raise PlanError(
                f"strategy.{name}={given} can be simulated but not run yet; use {name}={value}"
            )
    if isinstance(strategy, AsynchronousServer) and (strategy.servers or 1) > 1:
        raise PlanError(
            f"strategy.servers={strategy.servers}: one asynchronous server runs here, on rank 0; "
            f"use servers=1"
        )
    if plan.precision != "fp32":
        raise PlanError(
            f"precision={plan.precision!r} with strategy {strategy.name}: workers run in fp32 "
            f"here; use precision='fp32'"
        )


def train(work: Work, recipe: Recipe) -> Trained:
    """Train this rank's part; all ranks of the group call it."""
    return RUNNERS[work.plan.strategy.name](work, recipe)
