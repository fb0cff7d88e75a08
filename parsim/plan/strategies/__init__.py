"""What keeps the replicas of a model one model: the data-parallel strategies and their options.

A plan has one of these records. The synchronous all-reduce of `AllReduce` (DDP, and ZeRO where
the plan shards) is what a plan has that names none; it goes with every other axis. The others are
for replicas that hold the whole model, but for `BranchParallel` and `Layout`, whose workers hold it
in groups. `parsim/strategy/` has what each makes the ranks do.
"""

from parsim.plan.strategies.all_reduce import DDP, Algorithm, AllReduce, SingleProcess
from parsim.plan.strategies.averages import AsynchronousGossip, DiLoCo, Gossip, LocalSGD, Topology
from parsim.plan.strategies.servers import (
    AsynchronousServer,
    Compressing,
    ParameterServer,
    Servers,
    Where,
)
from parsim.plan.strategies.strategy import Strategy, of_kind
from parsim.plan.strategies.together import BranchParallel, Layout

STRATEGY_KINDS: dict[str, type[Strategy]] = {
    kind.name: kind
    for kind in (
        AllReduce,
        SingleProcess,
        ParameterServer,
        AsynchronousServer,
        Gossip,
        AsynchronousGossip,
        LocalSGD,
        DiLoCo,
        BranchParallel,
        Layout,
    )
}
"""Strategies by the name that a scenario calls them."""

__all__ = [
    "DDP",
    "STRATEGY_KINDS",
    "Algorithm",
    "AllReduce",
    "AsynchronousGossip",
    "AsynchronousServer",
    "BranchParallel",
    "Compressing",
    "DiLoCo",
    "Gossip",
    "Layout",
    "LocalSGD",
    "ParameterServer",
    "Servers",
    "SingleProcess",
    "Strategy",
    "Topology",
    "Where",
    "of_kind",
]
