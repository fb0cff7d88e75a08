"""The prices of workers that take steps of their own between averages."""

from __future__ import annotations

import numpy as np

from parsim.cost.kernel.kernels import memory_time
from parsim.plan.strategies import DiLoCo, LocalSGD, of_kind
from parsim.sim.data_parallel.averages import node_average
from parsim.sim.data_parallel.families.priced import Priced, compute_prices
from parsim.sim.data_parallel.workers import Workers
from parsim.strategy import STRATEGIES

MASTER_BYTES = 4.0
"""Bytes of a weight, a change or a momentum of an outer optimizer: fp32."""
OUTER_TRAFFIC = 6 * MASTER_BYTES
"""Bytes a parameter that an outer step moves: weights, change and momentum read, momentum, outer
weights and weights written."""


def local_steps(workers: Workers) -> Priced:
    """Averages of weights every so-many-th step, or steps of an outer optimizer."""
    strategy = of_kind(workers.plan.strategy, LocalSGD, DiLoCo)
    outer = isinstance(strategy, DiLoCo)
    local = strategy if isinstance(strategy, LocalSGD) else None
    node_every = (local.node_every or 0) if local else 0
    program = STRATEGIES[strategy.name].program(
        workers.nodes,
        workers.passes,
        every=strategy.every,
        node_every=node_every,
        after=local.after if local else 0,
        rounds=(local.steps or 0) if local else 0,
        outer=outer,
    )
    moved = OUTER_TRAFFIC * workers.parameters
    exposed = workers.evaluation.barrier - workers.evaluation.pipeline_time
    prices = {
        **compute_prices(workers),
        "reduce": np.array([exposed]),
        "average": np.array([workers.all_reduce]),
        "node_average": np.array([node_average(workers) if node_every else 0.0]),
        "outer": np.atleast_1d(memory_time(workers.job.cluster.devices[0], moved)),
    }
    often = sum(number in program.task("average").when for number in range(program.rounds)) + (
        local.after if local else 0
    )
    share = often / program.rounds
    traffic = share * 2.0 * workers.gradient_bytes * (workers.count - 1) / workers.count
    size = workers.gradient_bytes
    exposed_size = size * min(exposed / workers.all_reduce, 1.0) if exposed > 0.0 else size
    return Priced(
        program=program,
        seconds=prices,
        sent=traffic,
        received=traffic,
        carried={"average": size, "node_average": size, "reduce": exposed_size},
    )
