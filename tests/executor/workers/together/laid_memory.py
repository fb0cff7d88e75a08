"""Worker: measures the peak memory of models laid out on meshes, each beside its prediction.

Arguments: folder for the results, and a document of cases: scenario and overrides by name.
"""

from __future__ import annotations

import gc
import json
import sys
from pathlib import Path

import torch
import torch.distributed as dist

from executor.devices.all_ranks import gathered
from executor.devices.mesh import process_group
from executor.measure.memory import peak_above
from executor.model.laid import DeviceParts
from executor.strategies.replica import FlatOptimizer, FlatReplica
from executor.strategies.together.layout import Devices
from executor.strategies.work import Work
from executor.training.update_rule import OptimizerConfig
from parsim.model.graph.record import Graph
from parsim.scenario import load_scenario
from parsim.sim import simulate
from parsim.sim.layouts.priced import laid_out
from tests.executor.launch import die_with_parent, results
from tests.executor.workers.together.layouts import batch_of

CPU = torch.device("cpu")


def measured(path: Path, overrides: dict[str, str]) -> dict[str, list[float]]:
    """Peak bytes of every rank after two steps, and what was predicted."""
    scenario = load_scenario(path, overrides)
    plan, graph = scenario.fixed_plan(), scenario.model
    assert isinstance(graph, Graph)
    laid, rank = laid_out(scenario.job, plan), dist.get_rank()
    rows = plan.microbatch_size * plan.num_microbatches
    inputs, targets = batch_of(graph, plan.global_batch_size, 0)
    work = Work(
        plan=plan,
        replica=FlatReplica(
            laid.local, seed=0, device=CPU, values=DeviceParts(laid, rank).values(0)
        ),
        batches=lambda worker, _: (
            inputs[worker * rows : (worker + 1) * rows],
            targets[worker * rows : (worker + 1) * rows],
        ),
        config=OptimizerConfig(),
        rounds=1,
        clock=lambda: 0.0,
        laid=laid,
    )
    devices, optimizer = Devices.of(work), FlatOptimizer(work.replica.flat, work.config)

    def step() -> None:
        _, gradient = devices.gradient(0)
        optimizer.apply(gradient, 0, devices.norm(gradient))

    step()
    step()
    # images are no part of a model's memory: the test's own, and those put together for the mesh
    given = 8.0 * inputs.numel() * inputs.is_floating_point()
    peaks = gathered(peak_above(CPU, step) - given)
    return {"measured": peaks, "predicted": list(simulate(scenario.job, plan).peak_allocated)}


def main(folder: str, cases: str) -> None:
    die_with_parent()
    torch.set_num_threads(1)
    with process_group("gloo", 60.0):
        result = {}
        for name, (scenario, overrides) in json.loads(Path(cases).read_text()).items():
            result[name] = measured(Path(scenario), overrides)
            gc.collect()
        results(folder, dist.get_rank(), result)


if __name__ == "__main__":
    main(*sys.argv[1:])
