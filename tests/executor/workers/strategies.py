"""Trains with every strategy on one set of ranks, and repeats each in one process.

Argument: folder for the results. Each rank leaves the largest error of its final weights, relative
to the largest weight, by the name of the case.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace

import torch
import torch.distributed as dist
from torch import Tensor

from executor.devices.all_ranks import gathered
from executor.model.loss import Batch
from executor.strategies.compression import Compressor, unpacked
from executor.strategies.gossip import mix
from executor.strategies.local_steps import Outer
from executor.strategies.replays.log import Trained, ages, ages_of_peers
from executor.strategies.replays.peers import replay_peers
from executor.strategies.replays.replay import Replay, replay
from executor.strategies.replica import FlatOptimizer, FlatReplica
from executor.strategies.server_messages import shares
from executor.strategies.train import train
from executor.strategies.work import Work
from executor.training.update_rule import OptimizerConfig, Rate
from parsim.plan import Plan
from parsim.plan.strategies import (
    AsynchronousGossip,
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
ROUNDS = 6
SGD = OptimizerConfig(name="sgd", rate=Rate(peak=0.5), weight_decay=0.0)
CLIPPED = OptimizerConfig(
    name="sgd",
    rate=Rate(peak=0.5, warmup=2, decay="cosine", steps=ROUNDS),
    weight_decay=0.0,
    clip=0.1,
)
ADAMW = OptimizerConfig(rate=Rate(peak=1e-3))
CONFIGS = {"sgd": SGD, "clipped": CLIPPED, "adamw": ADAMW}
UNEVEN = (1, 3, 2)
DELAYS = (0.3, 0.6, 2.1)
"""Seconds that each worker sleeps in a round: the last one comes between the third step's end and
the fourth's."""
CPU = torch.device("cpu")


def batches(worker: int, number: int, rows: int = 2) -> Batch:
    """Two sequences, or more, that only this worker has in this round."""
    generator = torch.Generator().manual_seed(1000 * worker + number)
    ids = torch.randint(0, SPEC.vocab_size, (rows, SPEC.seq_len + 1), generator=generator)
    return ids[:, :-1].contiguous(), ids[:, 1:].contiguous()


def replica() -> FlatReplica:
    return FlatReplica(SPEC, seed=3, device=CPU)


def trained(work: Work) -> Tensor:
    return train(work).weights


def work_of(
    strategy: Strategy,
    config: OptimizerConfig,
    slow: Mapping[int, float] | None = None,
    *,
    uneven: bool = False,
) -> Work:
    world, start = dist.get_world_size(), time.perf_counter()
    plan = Plan(dp_replicate=world, strategy=strategy, precision="fp32", microbatch_size=2)
    if uneven:
        plan = Plan(
            dp_replicate=world,
            strategy=strategy,
            precision="fp32",
            num_microbatches=max(UNEVEN),
            replica_microbatches=UNEVEN,
        )
    return Work(
        plan=plan,
        replica=replica(),
        batches=(lambda worker, number: batches(worker, number, UNEVEN[worker]))
        if uneven
        else batches,
        config=config,
        rounds=ROUNDS,
        clock=lambda: time.perf_counter() - start,
        slow=slow or {},
    )


def one_process(config: OptimizerConfig, rows: tuple[int, ...] = (2, 2, 2)) -> Tensor:
    """All workers' samples as one batch."""
    model = replica()
    optimizer = FlatOptimizer(model.weights, config)
    for number in range(ROUNDS):
        parts = [batches(worker, number, count) for worker, count in enumerate(rows)]
        whole = torch.cat([p[0] for p in parts]), torch.cat([p[1] for p in parts])
        optimizer.apply(model.gradient(whole)[1], number)
        model.load(optimizer.weights)
    return optimizer.weights


def compressing(strategy: ParameterServer, config: OptimizerConfig) -> Tensor:
    """Every worker's compressed gradient, share by share, in one process."""
    model, world = replica(), dist.get_world_size()
    optimizer = FlatOptimizer(model.weights, config)
    parts = [share.part for share in shares(strategy, len(model.weights), world)]
    workers = [Compressor(strategy) for _ in range(world)]
    for number in range(ROUNDS):
        total = torch.zeros_like(model.weights)
        for worker, compressor in enumerate(workers):
            gradient = model.gradient(batches(worker, number))[1]
            for index, part in enumerate(parts):
                message = compressor.pack(index, gradient[part])
                total[part] += unpacked(strategy, message, part.stop - part.start)
        optimizer.apply(total / world, number)
        model.load(optimizer.weights)
    return optimizer.weights


def loops(recipe: OptimizerConfig, every: int, outer: DiLoCo | None = None) -> Tensor:
    """Each worker's local steps in turn, averaged."""
    model, world = replica(), dist.get_world_size()
    workers = [FlatOptimizer(model.weights, recipe) for _ in range(world)]
    step = None if outer is None else Outer(model.weights, outer)
    for number in range(ROUNDS):
        for worker, optimizer in enumerate(workers):
            model.load(optimizer.weights)
            optimizer.apply(model.gradient(batches(worker, number))[1], number)
        if (number + 1) % every == 0:
            mean = torch.stack([optimizer.weights for optimizer in workers]).mean(0)
            for optimizer in workers:
                optimizer.flat.copy_(mean)
            if step is not None:
                after = step.step(mean)
                for optimizer in workers:
                    optimizer.flat.copy_(after)
    return workers[dist.get_rank()].weights


def gossiping(recipe: OptimizerConfig, topology: str) -> Tensor:
    """Every worker's mix of the old weights, in one process."""
    model, world = replica(), dist.get_world_size()
    workers = [FlatOptimizer(model.weights, recipe) for _ in range(world)]
    for number in range(ROUNDS):
        old = [optimizer.weights for optimizer in workers]
        for worker, optimizer in enumerate(workers):
            model.load(old[worker])
            gradient = model.gradient(batches(worker, number))[1]
            mix(optimizer.flat, [old[n] for n in neighbours(worker, world, topology, number)])
            optimizer.apply(gradient, number)
    return workers[dist.get_rank()].weights


def error(weights: Tensor, expected: Tensor) -> float:
    return float((weights - expected).abs().max() / expected.abs().max())


def in_step(result: dict[str, object]) -> None:
    """Strategies without arrivals: final weights against those of one process."""
    for name, config in CONFIGS.items():
        whole = one_process(config)
        for servers in (None, 2):
            strategy = ParameterServer(servers=servers)
            result[f"server {servers} {name}"] = error(trained(work_of(strategy, config)), whole)
        result[f"every step {name}"] = error(trained(work_of(LocalSGD(every=1), config)), whole)
        third = trained(work_of(LocalSGD(every=3), config))
        result[f"every third {name}"] = error(third, loops(config, 3))
        outer = DiLoCo(every=2, outer_lr=0.5, outer_momentum=0.5)
        result[f"diloco {name}"] = error(trained(work_of(outer, config)), loops(config, 2, outer))
        gossip = trained(work_of(Gossip(), config))
        result[f"gossip {name}"] = error(gossip, gossiping(config, "ring"))
        one_peer = trained(work_of(Gossip(topology="exponential"), config))
        result[f"one peer {name}"] = error(one_peer, gossiping(config, "exponential"))
    plain = DiLoCo(every=3, outer_lr=1.0, outer_momentum=0.0)
    result["diloco without momentum"] = error(trained(work_of(plain, SGD)), loops(SGD, 3))
    for strategy in (
        ParameterServer(servers=2, compression=0.1),
        ParameterServer(servers=1, compression=0.5, compressor="half"),
    ):
        weights = trained(work_of(strategy, CLIPPED))
        result[strategy.label()] = error(weights, compressing(strategy, CLIPPED))
    uneven = trained(work_of(ParameterServer(servers=2), CLIPPED, uneven=True))
    result["uneven"] = error(uneven, one_process(CLIPPED, UNEVEN))


def arrivals(
    result: dict[str, object],
    strategy: Strategy,
    name: str,
    delay: Callable[[int, int], float] | None = None,
) -> None:
    """An asynchronous strategy with one slow worker: final weights against a replay of its log."""
    rank = dist.get_rank()
    config = CLIPPED if "servers" in name or "backup" in name else ADAMW
    work = replace(work_of(strategy, config, {} if delay else {1: 4.0}), delay=delay)
    done: Trained = train(work)
    result[f"rounds {name}"] = gathered([ended.round for ended in done.rounds])
    again = Replay(work.plan, replica(), batches, work.config, work.servers_config)
    logs, events = gathered(done.applied), gathered(done.events)
    log = [entry for here in logs for entry in here]
    if log:
        result[name] = error(done.weights, replay(again, log))
        result[f"ages {name}"] = ages(log)
        result[f"order {name}"] = [tuple(entry) for entry in log]
    else:
        result[name] = error(done.weights, replay_peers(again, events)[rank])
        result[f"ages {name}"] = ages_of_peers(events)
        result[f"events {name}"] = [tuple(event) for event in events[rank]]


def main(folder: str) -> None:
    dist.init_process_group("gloo")
    result: dict[str, object] = {}
    in_step(result)
    for bound in (None, 0, 1):
        arrivals(result, AsynchronousServer(servers=1, staleness=bound), f"asynchronous {bound}")
    arrivals(result, AsynchronousServer(servers=3), "servers 3")
    arrivals(result, AsynchronousServer(servers=2, staleness=1, compression=0.2), "servers 2")
    backup = ParameterServer(servers=1, backup_workers=1)
    arrivals(result, backup, "backup", lambda worker, _number: DELAYS[worker])
    arrivals(result, AsynchronousGossip(), "peers")
    rank = dist.get_rank()
    dist.destroy_process_group()
    results(folder, rank, result)


if __name__ == "__main__":
    main(sys.argv[1])
