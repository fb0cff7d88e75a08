"""The strategies by name: who writes each one's program, and what users must know of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from parsim.strategy.asynchronous_server import asynchronous_server
from parsim.strategy.branch_parallel import branch_parallel
from parsim.strategy.gossip import asynchronous_gossip, gossip
from parsim.strategy.layout import layout
from parsim.strategy.local_steps import local_steps
from parsim.strategy.parameter_server import parameter_server
from parsim.strategy.program import StepProgram
from parsim.strategy.single_process import single_process
from parsim.strategy.synchronous import synchronous


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """A strategy: what writes its `program`, and in words what it does, costs and is good for.

    In formulas n are workers, k servers, P bytes of weights, b bytes/s of a link.
    """

    program: Callable[..., StepProgram]
    what: str
    formula: str
    when: str
    paper: str
    options: str = ""


STRATEGIES: dict[str, Described] = {
    "ddp": Described(
        program=synchronous,
        what="Every replica computes the gradient of its samples; buckets of gradients are "
        "all-reduced while the backward still runs, and all replicas take the same step. Mirrored "
        "replication and, where the plan shards (zero_stage), ZeRO and FSDP are this strategy. It "
        "is what a plan does that names no other.",
        formula="step = F + B + exposed all-reduce + update; 2 P (n - 1) / n bytes a worker",
        when="the first choice on equal devices and a network of their class",
        paper="arXiv 2006.15704 (DDP), 2104.04473 (Megatron-LM), 1802.05799 (Horovod)",
        options="algorithm: ring, tree or hierarchical instead of the library's choice",
    ),
    "data_parallel": Described(
        program=single_process,
        what="One process drives all devices of a node (nn.DataParallel): each step, device 0 "
        "scatters the batch, replicates the weights, gathers the outputs, takes the loss, and "
        "reduces the gradients; it alone holds the optimizer. Its Python threads launch forwards "
        "one after another.",
        formula="step = scatter + replicate + max(F, n host) + gather + B + reduce + update; "
        "(n - 1) P out of device 0 and (n - 1) P into it, every step",
        when="a script that cannot become several processes; otherwise DDP is faster",
        paper="torch.nn.DataParallel; compared with DDP in arXiv 2006.15704",
    ),
    "parameter_server": Described(
        program=parameter_server,
        what="Servers hold the weights, in shards; each step all workers push their gradients, the "
        "servers sum and update, and all workers pull. Interfaces of nodes and the servers' memory "
        "are shared by all who push and pull at once.",
        formula="push = max(P / b_worker, n P / (k b_server)), pull alike; each server moves "
        "2 n P / k bytes a step",
        when="hosts with idle interfaces and memory (k near n), or weights too large for devices",
        paper="Li et al., OSDI 2014; backup workers: arXiv 1604.00981; BytePS, OSDI 2020",
        options="servers, on: hosts or devices, compression, compressor, backup_workers, "
        "node_sums (the workers of a node send their sum), overlap (pushes run beside backward)",
    ),
    "asynchronous_server": Described(
        program=asynchronous_server,
        what="Each worker pulls, computes and pushes at its own pace, and a server applies every "
        "gradient as it comes (Downpour, Hogwild). Nobody waits for a slow worker, but gradients "
        "are old by the updates of others; a bound on their staleness gives SSP.",
        formula="X = n / (Z + R), R = S (1 + Q), Q = X R; X <= min(n / (Z + S), 1 / S); mean "
        "staleness near n - 1",
        when="workers of mixed or changing speed, models that bear stale gradients",
        paper="Dean et al., NIPS 2012; Hogwild!, NIPS 2011; SSP, NIPS 2013",
        options="servers, on, compression, compressor, staleness (a bound), updates (simulated a "
        "worker)",
    ),
    "gossip": Described(
        program=gossip,
        what="No server and no all-reduce: each step every worker averages its weights with those "
        "of its neighbours, sent while it computes (D-PSGD).",
        formula="step = max(F + B, d P / b) + update; d P bytes a worker, d = 2 on a ring, else 1",
        when="slow or high-latency networks without a fast path for all-reduce",
        paper="arXiv 1705.09056 (D-PSGD), 1811.10792 (one-peer exponential graph)",
        options="topology: ring (both neighbours), or exponential (one peer a step, 1, 2, 4 ... "
        "away in turn)",
    ),
    "asynchronous_gossip": Described(
        program=asynchronous_gossip,
        what="Each worker averages its weights with one drawn peer while it computes, at its own "
        "pace; a peer takes part in one average at a time (AD-PSGD).",
        formula="round = max(F + B, P / b + wait for the peer) + update; 2 P bytes a worker",
        when="workers of mixed speed where no server is to be the bottleneck",
        paper="arXiv 1710.06952",
        options="updates (simulated a worker)",
    ),
    "local_sgd": Described(
        program=local_steps,
        what="Workers take optimizer steps of their own and average their weights every n-th. "
        "With node_every, those of a node do so more often; with after, training begins with "
        "averaged gradients. every: 1 is DDP and runs as DDP; under Adam averaged weights are not "
        "what averaged gradients give.",
        formula="step = F + B + update + all_reduce(P) / every; "
        "2 P (n - 1) / (n every) bytes a worker",
        when="networks too slow for an all-reduce each step",
        paper="arXiv 1805.09767 (local SGD), 1808.07217 (post-local, hierarchical)",
        options="every, node_every, after, steps",
    ),
    "diloco": Described(
        program=local_steps,
        what="Workers train alone for hundreds of steps (AdamW); the mean of their changes is the "
        "gradient of an outer SGD with Nesterov momentum, whose result all start from.",
        formula="step = F + B + update + (all_reduce(P) + outer) / every; weights and momentum of "
        "the outer optimizer, 8 bytes a parameter, beside the rest",
        when="islands of devices joined by the internet or a wide-area network",
        paper="arXiv 2311.08105",
        options="every, outer_lr, outer_momentum",
    ),
    "branch_parallel": Described(
        program=branch_parallel,
        what="So many neighbouring devices hold one model together, and its branches that may run "
        "at the same time are on devices apart: the paths of an Inception module, two towers, the "
        "heads of a multi-task model (task parallelism). Inputs of branches and what they hand to "
        "the join are messages, in backward their gradients; what has no branches beside it is on "
        "device 0. The devices take all their samples together; groups of them are replicas.",
        formula="step >= max((F + B) / devices, the longest way); values at forks and joins, both "
        "ways, between devices",
        when="models with wide branches or heavy heads and little to send at their borders; "
        "samples too few to share out instead",
        paper="arXiv 1404.5997 (one weird trick), 1807.05358 (FlexFlow), 2011.01302 (IOS); "
        "multi-task: Caruana 1997",
        options="devices (of a model), branches (device of each, by the name of its first "
        "operation or what its names begin with; default: the best found)",
    ),
    "layout": Described(
        program=layout,
        what="The devices of a mesh hold one model together, every tensor split along a dimension, "
        "whole, or a summand on each axis: Mesh-TensorFlow's layouts (named dimensions on axes) "
        "and OneFlow's SBP (a signature for each operation) in one. Where an operation wants "
        "another layout than a tensor has, a collective changes it, and its dual the gradient; "
        "gradients of what is whole on an axis are all-reduced over it. What is not stated is the "
        "cheapest. Groups of devices beyond the mesh are replicas.",
        formula="step = F + B of the parts + changes of layout both ways + what no backward hides "
        "of the sums of gradients; S to B all-gather, P to B all-reduce, P to S reduce-scatter, "
        "S(i) to S(j) all-to-all, B to S free",
        when="graphs whose operations want different splits: wide products behind convolutions, "
        "large tables, classifiers of many classes",
        paper="arXiv 1811.02084 (Mesh-TensorFlow), 2110.15032 (OneFlow), 1404.5997 (one weird "
        "trick), 1802.04924 (layer-wise search)",
        options="mesh (axes and their sizes), layout (axis of each named dimension) or signatures "
        "(input, weight, output of operations; default: the cheapest)",
    ),
}
"""By the names that scenarios use (`plan.strategy`)."""
