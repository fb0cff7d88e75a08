"""Who writes and prices the program of a plan's strategy."""

from __future__ import annotations

from collections.abc import Callable

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
from parsim.sim.data_parallel.families.local_steps import local_steps
from parsim.sim.data_parallel.families.peers import asynchronous_gossip, gossip
from parsim.sim.data_parallel.families.priced import Priced
from parsim.sim.data_parallel.families.servers import asynchronous_server, parameter_server
from parsim.sim.data_parallel.families.single_process import single_process
from parsim.sim.data_parallel.families.together import branch_parallel, layout
from parsim.sim.data_parallel.workers import Workers

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
