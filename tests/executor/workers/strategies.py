"""Trains with every strategy on one set of ranks, and repeats each in one process.

Argument: folder for the results. Each rank leaves the largest error of its final weights, relative
to the largest weight, by the name of the case.
"""

from __future__ import annotations

import sys
import time

import torch
import torch.distributed as dist
from torch import Tensor

from executor.strategies.gossip import mixed
from executor.strategies.local_steps import Outer
from executor.strategies.log import Work
from executor.strategies.replay import ages, replay
from executor.strategies.replica import Batch, FlatOptimizer, Recipe, Replica
from executor.strategies.train import train
from parsim.plan import Plan
from parsim.plan.strategies import (
    AsynchronousServer,
    DiLoCo,
    Gossip,
    LocalSGD,
    ParameterServer,
    Strategy,
)
from parsim.strategy.gossip import neighbours
from tests.executor.launch import results
from tests.executor.tiny import FAMILIES

SPEC = FAMILIES["gpt2"]
SGD = Recipe(name="sgd", learning_rate=0.5, weight_decay=0.0)
ADAMW = Recipe(learning_rate=1e-3)
ROUNDS = 6
CPU = torch.device("cpu")


def batches(worker: int, number: int) -> Batch:
    """Two sequences that only this worker has in this round."""
    generator = torch.Generator().manual_seed(1000 * worker + number)
    ids = torch.randint(0, SPEC.vocab_size, (2, SPEC.seq_len + 1), generator=generator)
    return ids[:, :-1].contiguous(), ids[:, 1:].contiguous()


def replica() -> Replica:
    return Replica(SPEC, seed=3, device=CPU)


def trained(strategy: Strategy, recipe: Recipe, slow: float = 1.0) -> tuple[Tensor, list[object]]:
    world = dist.get_world_size()
    plan = Plan(dp_replicate=world, strategy=strategy, precision="fp32", microbatch_size=2)
    start = time.perf_counter()
    work = Work(
        plan=plan,
        replica=replica(),
        batches=batches,
        rounds=ROUNDS,
        clock=lambda: time.perf_counter() - start,
        slow=slow,
    )
    done = train(work, recipe)
    return done.weights, list(done.applied)


def one_process(recipe: Recipe) -> Tensor:
    """All workers' samples as one batch."""
    model, world = replica(), dist.get_world_size()
    optimizer = FlatOptimizer(model.weights, recipe)
    for number in range(ROUNDS):
        parts = [batches(worker, number) for worker in range(world)]
        whole = torch.cat([p[0] for p in parts]), torch.cat([p[1] for p in parts])
        optimizer.apply(model.gradient(whole)[1])
        model.load(optimizer.weights)
    return optimizer.weights


def loops(recipe: Recipe, every: int, outer: DiLoCo | None = None) -> Tensor:
    """Each worker's local steps in turn, averaged."""
    model, world = replica(), dist.get_world_size()
    workers = [FlatOptimizer(model.weights, recipe) for _ in range(world)]
    step = None if outer is None else Outer(model.weights, outer)
    for number in range(ROUNDS):
        for worker, own in enumerate(workers):
            model.load(own.weights)
            own.apply(model.gradient(batches(worker, number))[1])
        if (number + 1) % every == 0:
            mean = torch.stack([own.weights for own in workers]).mean(0)
            for own in workers:
                own.set(mean)
            if step is not None:
                after = step.step(mean)
                for own in workers:
                    own.set(after)
    return workers[dist.get_rank()].weights


def gossiping(recipe: Recipe, topology: str) -> Tensor:
    """Every worker's mix of the old weights, in one process."""
    model, world = replica(), dist.get_world_size()
    workers = [FlatOptimizer(model.weights, recipe) for _ in range(world)]
    for number in range(ROUNDS):
        old = [own.weights for own in workers]
        for worker, own in enumerate(workers):
            model.load(old[worker])
            gradient = model.gradient(batches(worker, number))[1]
            own.set(mixed(old[worker], [old[n] for n in neighbours(worker, world, topology)]))
            own.apply(gradient)
    return workers[dist.get_rank()].weights


def error(weights: Tensor, expected: Tensor) -> float:
    return float((weights - expected).abs().max() / expected.abs().max())


def main(folder: str) -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    found: dict[str, object] = {}
    whole = {"sgd": one_process(SGD), "adamw": one_process(ADAMW)}
    for name, recipe in (("sgd", SGD), ("adamw", ADAMW)):
        for servers in (None, 1, 2):
            weights, _ = trained(ParameterServer(servers=servers), recipe)
            found[f"server {servers} {name}"] = error(weights, whole[name])
        weights, _ = trained(LocalSGD(every=1), recipe)
        found[f"every step {name}"] = error(weights, whole[name])
        weights, _ = trained(LocalSGD(every=3), recipe)
        found[f"every third {name}"] = error(weights, loops(recipe, 3))
        outer = DiLoCo(every=2, outer_lr=0.5, outer_momentum=0.5)
        weights, _ = trained(outer, recipe)
        found[f"diloco {name}"] = error(weights, loops(recipe, 2, outer))
        weights, _ = trained(Gossip(), recipe)
        found[f"gossip {name}"] = error(weights, gossiping(recipe, "ring"))
    plain = DiLoCo(every=3, outer_lr=1.0, outer_momentum=0.0)
    found["diloco without momentum"] = error(trained(plain, SGD)[0], loops(SGD, 3))
    for bound in (None, 0, 1):
        slow = 4.0 if rank == 1 else 1.0
        weights, applied = trained(AsynchronousServer(staleness=bound), ADAMW, slow=slow)
        log = [applied]
        dist.broadcast_object_list(log, src=0)
        again = replay(replica(), log[0], batches, ADAMW)  # type: ignore[arg-type]
        found[f"asynchronous {bound}"] = error(weights, again)
        found[f"ages {bound}"] = ages(log[0])  # type: ignore[arg-type]
        found[f"order {bound}"] = [tuple(entry) for entry in log[0]]  # type: ignore[arg-type]
    dist.destroy_process_group()
    results(folder, rank, found)


if __name__ == "__main__":
    main(sys.argv[1])
