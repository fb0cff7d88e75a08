"""Models with branches on groups of ranks, held against one process that has the whole model.

Arguments: folder for the results, and names of cases. Each rank leaves by the name of the case the
verdict on a step's gradients (rank 0), the largest error of its weights after several steps,
relative to the largest weight, and what parameters it holds.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from typing import Any

import torch
import torch.distributed as dist

from executor.model.graph.modules import without_dropout
from executor.model.loss import Batch
from executor.strategies.replica import FlatOptimizer, FlatReplica
from executor.strategies.train import train, verify
from executor.strategies.work import Work
from executor.training.samples import Images
from executor.training.update_rule import OptimizerConfig, Rate
from parsim.cluster.hardware import Cluster
from parsim.cluster.reader import load_catalog
from parsim.cost.job import Job
from parsim.cost.software import software
from parsim.model.graph.build import build_graph
from parsim.model.graph.record import Graph
from parsim.plan import Plan
from parsim.plan.strategies import BranchParallel
from parsim.sim.branches.placement import Placement
from parsim.sim.branches.priced import placement_of
from tests.executor.launch import results
from tests.parsim.sim.branches.models import MODELS

SGD = OptimizerConfig(name="sgd", rate=Rate(peak=0.05), weight_decay=0.0, clip=0.5)
ROUNDS, SEED = 3, 3
CPU = torch.device("cpu")

CASES: Mapping[str, tuple[str, int, int, dict[str, int] | None]] = {
    "tasks": ("tasks", 2, 2, None),
    "three tasks": ("tasks", 2, 1, {"head0": 1, "head2": 1}),
    "towers": ("towers", 2, 1, {"conv1b": 1, "cross2b": 1}),
    "modules": ("modules", 2, 2, {"first.1": 1, "first.pool": 1, "second.2": 1}),
    "forked": ("modules", 2, 1, {"third.1": 1, "third.1.wide": 0, "third.pool": 1}),
    "found": ("modules", 2, 1, None),
    "cells": ("cells", 4, 1, {}),
    "replicas of modules": ("modules", 2, 2, None),
    "inception-v3": ("inception-v3", 2, 1, None),
}
"""A model, devices of a group, micro-batches, and where branches are put by hand; {}: in turn."""


def planned(case: str) -> tuple[Graph, Plan]:
    """The model of a case, and its plan on all ranks."""
    name, devices, microbatches, branches = CASES[case]
    graph = without_dropout(MODELS[name]())
    given = None if branches is None else tuple((branches or in_turn(graph, devices)).items())
    plan = Plan(
        dp_replicate=dist.get_world_size(),
        strategy=BranchParallel(devices=devices, branches=given),
        microbatch_size=2,
        num_microbatches=microbatches,
        precision="fp32",
    )
    return graph, plan


def in_turn(graph: Graph, devices: int) -> dict[str, int]:
    """Every branch on the next device."""
    branching = build_graph(graph).branching
    if branching is None:
        raise ValueError("no branches")
    return {branching.paths[n].name: i % devices for i, n in enumerate(branching.branches)}


def placed(graph: Graph, plan: Plan) -> Placement:
    """Where the simulator puts the paths."""
    cluster = Cluster(system=load_catalog().system("cpu"), num_nodes=1)
    job = Job(model=build_graph(graph), cluster=cluster, software=software("executor-cpu"))
    return placement_of(job, plan)


def work_of(graph: Graph, plan: Plan) -> Work:
    """What this rank trains."""
    start, images = time.perf_counter(), Images.of(graph)
    placement, rows = placed(graph, plan), plan.microbatch_size * plan.num_microbatches

    def batches(worker: int, number: int) -> Batch:
        whole = images.batches(seed=1, global_batch_size=plan.global_batch_size, first_step=number)
        inputs, targets = next(whole)
        mine = slice(worker * rows, (worker + 1) * rows)
        return inputs[mine], targets[mine]

    only = placement.nodes(dist.get_rank() % plan.strategy.sharers)
    return Work(
        plan=plan,
        replica=FlatReplica(graph, seed=SEED, device=CPU, only=only),
        batches=batches,
        config=SGD,
        rounds=ROUNDS,
        clock=lambda: time.perf_counter() - start,
        placement=placement,
    )


def one_process(work: Work) -> dict[str, torch.Tensor]:
    """Weights after the same steps of the whole model: a group's samples at a time."""
    model, plan = FlatReplica(work.replica.spec, seed=SEED, device=CPU), work.plan.whole_models
    optimizer = FlatOptimizer(model.flat, SGD)
    for number in range(ROUNDS):
        parts = [work.batches(worker, number) for worker in range(work.plan.dp)]
        whole = torch.cat([part[0] for part in parts]), torch.cat([part[1] for part in parts])
        count = plan.dp * plan.num_microbatches
        optimizer.apply(model.gradient(whole, count)[1], number)
    return model.named(model.flat)


def held_against(case: str) -> dict[str, Any]:
    """What this rank finds of a case."""
    graph, plan = planned(case)
    verdict = verify(work_of(graph, plan), SEED)
    work = work_of(graph, plan)
    done, whole = train(work), one_process(work)
    mine = work.replica.named(done.weights)
    largest = max(float(values.abs().max()) for values in whole.values())
    errors = [float((values - whole[name]).abs().max()) for name, values in mine.items()]
    return {
        "verdict": verdict,
        "error": max(errors, default=0.0) / largest,
        "held": sorted(mine),
        "whole": sorted(whole),
        "losses": [ended.loss for ended in done.rounds],
    }


def main(folder: str, *cases: str) -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    answers = {case: held_against(case) for case in cases}
    dist.destroy_process_group()
    results(folder, rank, answers)


if __name__ == "__main__":
    main(*sys.argv[1:])
