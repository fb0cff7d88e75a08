"""Trains networks of images on two ranks and holds their gradients against one process's."""

from __future__ import annotations

import sys

import torch
import torch.distributed as dist

from executor.devices.mesh import process_group
from executor.measure.gradients import gather_gradients, max_relative_error, reference
from executor.model.batch_norm import synchronise
from executor.model.loss import cross_entropy
from executor.model.module import build_model
from executor.parallel.context import rank_part
from executor.training.build import build_trainer
from executor.training.samples import Images
from parsim.model.graph.images import AdaptiveAvgPool2d
from parsim.model.graph.pointwise import Flatten
from parsim.model.graph.record import INPUT, Graph
from parsim.model.graph.sketch import Sketch
from parsim.model.graph.texts import CrossEntropy
from parsim.plan import Plan, Recompute
from tests.executor.launch import results


def small() -> Graph:
    """Two blocks with a short cut, groups and a stride, wide enough that no value is near zero."""
    draw = Sketch("small", (3, 12, 12))
    x = draw.batch_norm(draw.conv(INPUT, "conv1", 8, 3, padding=1), "bn1")
    x = draw.end_layer(draw.relu(x, "relu1"))
    y = draw.batch_norm(draw.conv(x, "conv2", 8, 3, padding=1, groups=2), "bn2")
    x = draw.end_layer(draw.add("add", y, x))
    x = draw.batch_norm(draw.conv(x, "conv3", 16, 3, stride=2, padding=1), "bn3")
    x = draw.end_layer(draw.max_pool(x, "pool", 2, 2))
    x = draw.node(Flatten(), "flatten", draw.node(AdaptiveAvgPool2d(), "mean", x))
    draw.node(CrossEntropy(), "loss", draw.dense(x, "fc", 5))
    return draw.graph()


BASE = Plan(dp_replicate=2, microbatch_size=4, num_microbatches=2, precision="fp32")
PLANS = {
    "ddp": BASE,
    "synchronised": Plan(dp_replicate=2, microbatch_size=8, precision="fp32", sync_batch_norm=True),
    "synchronised in two": Plan(
        dp_replicate=2,
        microbatch_size=4,
        num_microbatches=2,
        precision="fp32",
        sync_batch_norm=True,
    ),
    "pipeline": Plan(
        pp=2, microbatch_size=4, num_microbatches=4, precision="fp32", stage_layers=(2, 2)
    ),
    "sharded": Plan(
        dp_shard=2, microbatch_size=8, zero_stage=3, precision="fp32", recompute=Recompute.FULL
    ),
}


def executed(plan: Plan) -> float:
    """Largest relative error of a plan's gradients beside one process's, on rank 0."""
    graph, cpu = small(), torch.device("cpu")
    batch = next(Images.of(graph).batches(seed=1, global_batch_size=16))
    trainer = build_trainer(graph, plan, device=cpu, seed=1)
    trainer.gradients(*rank_part(graph, plan, dist.get_rank(), batch))
    gradients = gather_gradients(trainer.replicas, trainer.mesh, plan)
    if dist.get_rank():
        return 0.0
    return max_relative_error(gradients, reference(graph, plan, batch, 1)[1]).error


def exact() -> float:
    """Synchronised batch normalisation in fp64, gradients averaged by hand."""
    graph = small()
    images, classes = next(Images.of(graph).batches(seed=1, global_batch_size=16))
    model = build_model(graph, dtype=torch.float64, seed=1)
    synchronise(model, dist.group.WORLD)
    rows = slice(8 * dist.get_rank(), 8 * dist.get_rank() + 8)
    cross_entropy(model(images[rows].double()), classes[rows]).backward()
    gradients = {}
    for name, parameter in model.named_parameters():
        dist.all_reduce(parameter.grad)
        gradients[name] = parameter.grad / 2
    plan = PLANS["synchronised"]
    wanted = reference(graph, plan, (images, classes), 1, precision="fp64")[1]
    return max_relative_error(gradients, wanted).error


def main() -> None:
    torch.set_num_threads(1)
    with process_group("gloo", 120.0):
        errors = {name: executed(plan) for name, plan in PLANS.items()}
        errors["fp64"] = exact()
        results(sys.argv[1], dist.get_rank(), errors)


if __name__ == "__main__":
    main()
