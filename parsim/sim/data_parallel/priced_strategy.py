"""A plan's strategy, priced: its workers, the program that they run, and how much its steps grow.

Whoever predicts, draws or disturbs a strategy takes it from here, from the plan's DDP step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from parsim.plan import Plan
from parsim.plan.strategies import (
    AsynchronousGossip,
    AsynchronousServer,
    BranchParallel,
    DiLoCo,
    Gossip,
    Layout,
    LocalSGD,
    ParameterServer,
    SingleProcess,
)
from parsim.sim.data_parallel.families.averages import asynchronous_gossip, gossip, local_steps
from parsim.sim.data_parallel.families.priced import Priced
from parsim.sim.data_parallel.families.servers import asynchronous_server, parameter_server
from parsim.sim.data_parallel.families.single_process import single_process
from parsim.sim.data_parallel.families.together import branch_parallel, layout
from parsim.sim.data_parallel.workers import Workers
from parsim.sim.recurrence.evaluate import Evaluation


@dataclass(frozen=True, slots=True, kw_only=True)
class PricedStrategy:
    """The workers of a plan with the program of its strategy and what everything in it costs."""

    workers: Workers
    priced: Priced

    @classmethod
    def of(cls, evaluation: Evaluation, plan: Plan) -> PricedStrategy:
        """Place a plan's workers and price its strategy.

        Args:
            evaluation: tier B's answer for the plan's whole models with all-reduced gradients.
            plan: the plan with its strategy.
        """
        workers = Workers.of(evaluation, plan)
        return cls(workers=workers, priced=PROGRAMS[plan.strategy.name](workers))

    @property
    def straggler(self) -> float:
        """The share by which steps grow: none where workers do not wait for one another."""
        return self.workers.straggler if self.priced.synchronises else 0.0

    @property
    def growth(self) -> float:
        """How many times as long steps take as they do without stragglers."""
        return 1.0 + self.straggler


PROGRAMS: dict[str, Callable[[Workers], Priced]] = {
    SingleProcess.name: single_process,
    ParameterServer.name: parameter_server,
    AsynchronousServer.name: asynchronous_server,
    Gossip.name: gossip,
    AsynchronousGossip.name: asynchronous_gossip,
    LocalSGD.name: local_steps,
    DiLoCo.name: local_steps,
    BranchParallel.name: branch_parallel,
    Layout.name: layout,
}
"""By the name of the strategy."""
