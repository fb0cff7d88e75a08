"""Models laid out on meshes of ranks, held against one process that has the whole model.

Arguments: folder for the results, and names of cases. Each rank leaves by the name of the case the
verdict on a step's gradients in fp32 (rank 0), the largest errors of gradients and loss in fp64,
and that of its weights after several steps.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from executor.model.graph.modules import without_dropout
from executor.model.laid import DeviceParts
from executor.model.loss import Batch
from executor.strategies.replica import FlatOptimizer, FlatReplica
from executor.strategies.together.layout import Devices
from executor.strategies.train import train, verify
from executor.strategies.work import Work
from executor.training.samples import Images
from executor.training.update_rule import OptimizerConfig, Rate
from parsim.cluster.hardware import Cluster
from parsim.cluster.reader import load_catalog
from parsim.cost.job import Job
from parsim.cost.software import software
from parsim.layout.laid import Laid
from parsim.model.graph.build import build_graph
from parsim.model.graph.record import Graph
from parsim.plan import Plan
from parsim.plan.strategies import Layout
from parsim.sim.layouts.priced import laid_out
from tests.executor.launch import results
from tests.parsim.sim.layouts.models import MODELS

SGD = OptimizerConfig(name="sgd", rate=Rate(peak=0.05), weight_decay=0.0, clip=0.5)
ROUNDS, SEED = 3, 3
CPU = torch.device("cpu")


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A model, a mesh, how the layout is stated (nothing: chosen), and micro-batches."""

    model: str
    mesh: Mapping[str, int]
    layout: Mapping[str, str] | None = None
    signatures: Mapping[str, Mapping[str, str]] | None = None
    microbatches: int = 1


TWO: Mapping[str, Case] = {
    "data parallel": Case(model="convolutions", mesh={"a": 2}, layout={"batch": "a"}),
    "channels": Case(model="convolutions", mesh={"a": 2}, layout={"channels": "a"}, microbatches=2),
    "inputs": Case(
        model="convolutions",
        mesh={"a": 2},
        signatures={
            "conv2": {"input": "S(1)", "weight": "S(1)"},
            "add": {"output": "P"},
            "fc3": {"weight": "S(0)"},
            "fc4": {"input": "P"},
            "fc5": {"weight": "S(1)"},
        },
    ),
    "weird": Case(
        model="convolutions",
        mesh={"a": 2},
        signatures={
            "conv1": {"output": "S(0)"},
            "norm2": {"output": "S(0)"},
            "flatten": {"output": "S(0)"},
            "fc3": {"weight": "S(1)"},
            "fc4": {"weight": "S(1)"},
            "fc5": {"weight": "S(1)"},
            "loss": {"input": "S(0)"},
        },
    ),
    "heads": Case(
        model="text", mesh={"a": 2}, layout={"heads": "a", "ffn": "a", "vocab": "a"}, microbatches=2
    ),
    "sequence": Case(model="text", mesh={"a": 2}, layout={"sequence": "a"}),
    "table columns": Case(
        model="text",
        mesh={"a": 2},
        signatures={"source": {"weight": "S(1)"}, "logits": {"weight": "S(0)"}},
    ),
    "tasks": Case(model="tasks", mesh={"a": 2}, layout={"batch": "a"}, microbatches=2),
    "chosen": Case(model="convolutions", mesh={"a": 2}),
    "summands": Case(
        model="products",
        mesh={"a": 2},
        signatures={"fc1": {"weight": "S(0)"}, "fc2": {"output": "S(1)"}, "loss": {"input": "B"}},
    ),
}
FOUR: Mapping[str, Case] = {
    "mesh of text": Case(
        model="text",
        mesh={"rows": 2, "cols": 2},
        layout={"batch": "rows", "heads": "cols", "ffn": "cols", "vocab": "cols"},
    ),
    "mesh of images": Case(
        model="convolutions",
        mesh={"rows": 2, "cols": 2},
        layout={"batch": "rows", "channels": "cols", "vocab": "cols"},
        microbatches=2,
    ),
    "nested": Case(
        model="convolutions",
        mesh={"rows": 2, "cols": 2},
        signatures={
            "conv1": {"output": "S(0),S(0)"},
            "conv2": {"output": "S(0),S(1)"},
            "norm2": {"output": "S(0),S(0)"},
            "fc3": {"weight": "B,S(1)"},
            "fc4": {"weight": "S(1),S(1)"},
            "fc5": {"weight": "S(0),S(1)"},
        },
    ),
    "replicas": Case(model="convolutions", mesh={"a": 2}, layout={"batch": "a"}, microbatches=2),
    "replicas of text": Case(model="text", mesh={"a": 2}, layout={"heads": "a", "vocab": "a"}),
}
CASES = {**TWO, **FOUR}


def planned(case: Case) -> tuple[Graph, Plan]:
    """The model of a case, and its plan on all ranks."""
    stated = None
    if case.signatures is not None:
        stated = tuple((name, tuple(parts.items())) for name, parts in case.signatures.items())
    strategy = Layout(
        mesh=tuple(case.mesh.items()),
        layout=None if case.layout is None else tuple(case.layout.items()),
        signatures=stated,
    )
    plan = Plan(
        dp_replicate=dist.get_world_size(),
        strategy=strategy,
        microbatch_size=2,
        num_microbatches=case.microbatches,
        precision="fp32",
        bucket_bytes=2_000.0,  # several buckets, sent while backward goes on
    )
    return MODELS[case.model](), plan


def laid(graph: Graph, plan: Plan) -> Laid:
    """What the simulator says that each rank has."""
    cluster = Cluster(system=load_catalog().system("cpu"), num_nodes=1)
    job = Job(model=build_graph(graph), cluster=cluster, software=software("executor-cpu"))
    return laid_out(job, plan)


def batch_of(graph: Graph, size: int, number: int) -> Batch:
    """A global batch: images with classes, or a text whose next word is wanted."""
    if len(graph.input_shape) > 1:
        images = Images.of(graph).batches(seed=1, global_batch_size=size, first_step=number)
        return next(images)
    draw = torch.Generator().manual_seed(number)
    words = graph.shapes[graph.nodes[-1].inputs[0]][-1]
    tokens = torch.randint(words, (size, graph.input_shape[0] + 1), generator=draw)
    return tokens[:, :-1], tokens[:, 1:].contiguous()


def work_of(graph: Graph, plan: Plan, dtype: torch.dtype = torch.float32) -> Work:
    """What this rank trains."""
    start, rows = time.perf_counter(), plan.microbatch_size * plan.num_microbatches
    whole = laid(graph, plan)

    def batches(worker: int, number: int) -> Batch:
        inputs, targets = batch_of(graph, plan.global_batch_size, number)
        mine = slice(worker * rows, (worker + 1) * rows)
        inputs = inputs.to(dtype) if inputs.is_floating_point() else inputs
        return inputs[mine], targets[mine]

    values = DeviceParts(whole, dist.get_rank()).values(SEED)
    return Work(
        plan=plan,
        replica=FlatReplica(whole.local, seed=SEED, device=CPU, values=values, dtype=dtype),
        batches=batches,
        config=SGD,
        rounds=ROUNDS,
        clock=lambda: time.perf_counter() - start,
        laid=whole,
    )


def whole_batch(work: Work, number: int) -> Batch:
    """The samples of all workers."""
    parts = [work.batches(worker, number) for worker in range(work.plan.dp)]
    return torch.cat([part[0] for part in parts]), torch.cat([part[1] for part in parts])


def one_process(graph: Graph, work: Work) -> dict[str, torch.Tensor]:
    """Weights after the same steps of the whole model."""
    model, plan = FlatReplica(graph, seed=SEED, device=CPU), work.plan.whole_models
    optimizer = FlatOptimizer(model.flat, SGD)
    for number in range(ROUNDS):
        count = plan.dp * plan.num_microbatches
        optimizer.apply(model.gradient(whole_batch(work, number), count)[1], number)
    return model.named(model.flat)


def in_fp64(graph: Graph, plan: Plan) -> tuple[float, float]:
    """Errors of a step's gradients, over the largest of each, and of its loss."""
    work = work_of(graph, plan, torch.float64)
    devices = Devices.of(work)
    loss, gradient = devices.gradient(0)
    named = devices.named(gradient)
    if named is None:
        return 0.0, 0.0
    model = FlatReplica(graph, seed=SEED, device=CPU, dtype=torch.float64)
    whole = plan.whole_models
    exact, flat = model.gradient(whole_batch(work, 0), whole.dp * whole.num_microbatches)
    errors = [
        float((named[name] - part).abs().max() / part.abs().max().clamp(min=1e-12))
        for name, part in model.named(flat).items()
    ]
    return max(errors), abs(loss / exact - 1.0)


def apart(graph: Graph, plan: Plan) -> float:
    """How far copies of parameters are from one another after steps with dropout."""
    work = work_of(graph, plan)
    done = train(work)
    devices = Devices.of(work)
    every: list[dict[str, torch.Tensor]] = [{} for _ in range(dist.get_world_size())]
    dist.all_gather_object(every, work.replica.named(done.weights))
    layout = devices.parts.layout
    whole = [name for name in every[0] if layout(name)[0] == devices.parts.laid.nothing]
    errors = [float((part[name] - every[0][name]).abs().max()) for name in whole for part in every]
    return max(errors, default=0.0)


def held_against(case: Case) -> dict[str, Any]:
    """What this rank finds of a case."""
    drops, plan = planned(case)
    graph = without_dropout(drops)
    error, loss_error = in_fp64(graph, plan)
    verdict = verify(work_of(graph, plan), SEED)
    work = work_of(graph, plan)
    done, whole = train(work), one_process(graph, work)
    named = Devices.of(work).named(done.weights)
    errors = [
        float((values - whole[name]).abs().max() / whole[name].abs().max().clamp(min=1e-3))
        for name, values in (named or {}).items()
    ]
    return {
        "verdict": verdict,
        "gradient": error,
        "loss": loss_error,
        "weights": max(errors, default=0.0),
        "names": sorted(named or {}) == sorted(whole),
        "apart": apart(drops, plan),
        "values": sum(parameter.numel() for parameter in work.replica.model.parameters()),
        "losses": [ended.loss for ended in done.rounds],
        "norms": [ended.norm for ended in done.rounds],
    }


def main(folder: str, *cases: str) -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    answers = {case: held_against(CASES[case]) for case in cases}
    dist.destroy_process_group()
    results(folder, rank, answers)


if __name__ == "__main__":
    main(*sys.argv[1:])
