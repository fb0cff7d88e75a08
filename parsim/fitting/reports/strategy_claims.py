"""What the simulator says to the usual claims on data parallelism, as rows of tables.

Machines of one V100 each, joined by one interface of 1, 10 or 100 Gb/s, with a batch of one
micro-batch a machine; all else is that of the shipped scenarios, of which each table names the
changes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from parsim.cluster.hardware import Cluster
from parsim.cost.jitter import Jitter
from parsim.guide.compare import guide
from parsim.guide.record import FamilyRow
from parsim.scenario import Scenario, load_scenario
from parsim.sim import Prediction, simulate

MODELS: Mapping[str, tuple[str, int]] = {
    "resnet50": ("scenarios/resnet50-dgx-1v.yaml", 64),
    "vgg16": ("scenarios/resnet50-dgx-1v.yaml", 64),
    "bert-large": ("scenarios/bert-large-dgx-1v.yaml", 8),
}
"""Models with the scenario that they are taken from and their micro-batch."""
NETWORKS = ("1Gb/s", "10Gb/s", "100Gb/s")
MACHINES = (1, 2, 4, 8, 16, 32, 64)
HALF_SPEED = Jitter(slow_ranks=((0, 2.0),), stated=frozenset({"slow_ranks"}))
"""Worker 0 takes twice as long as the others."""
GROWING = ("gpt2", "gpt2-xl", "gpt-3.6b", "gpt-7.5b", "gpt-18.4b", "gpt-39.1b", "gpt-76.1b")
"""Models of one family that grow."""

DDP = "ddp"
ONE_SERVER = "{name: parameter_server, servers: 1}"
SERVERS = "parameter_server"
ASYNCHRONOUS = "asynchronous_server"
ONE_ASYNCHRONOUS = "{name: asynchronous_server, servers: 1}"
LOCAL = "{name: local_sgd, every: 8}"

Row = Sequence[str]


@dataclass(frozen=True, slots=True)
class Machines:
    """So many machines with one device each, on a network of a rate, that train a model."""

    model: str
    count: int
    network: str

    def scenario(self, strategy: str) -> Scenario:
        """The shipped scenario with these changes."""
        path, microbatch = MODELS[self.model]
        changes = {
            "model.name": self.model,
            "cluster.nodes": str(self.count),
            "cluster.devices_per_node": "1",
            "cluster.network.nics_per_node": "1",
            "cluster.network.nic_bandwidth": self.network,
            "training.global_batch_size": str(self.count * microbatch),
            "plan.dp": str(self.count),
            "plan.microbatch_size": str(microbatch),
            "plan.strategy": strategy,
        }
        return load_scenario(Path(path), changes)

    def prediction(self, strategy: str, jitter: Jitter | None = None) -> Prediction:
        """What is predicted of a strategy."""
        loaded = self.scenario(strategy)
        return simulate(loaded.job, loaded.fixed_plan(), jitter=jitter)

    def rate(self, strategy: str, jitter: Jitter | None = None) -> float:
        """Samples a second."""
        prediction = self.prediction(strategy, jitter)
        return prediction.plan.global_batch_size / prediction.step_time


def speed_ups() -> Iterator[Row]:
    """DDP's speed-up over one machine, by model, network and number of machines."""
    for model in MODELS:
        for network in NETWORKS:
            alone = Machines(model, 1, network).rate(DDP)
            rates = [Machines(model, count, network).rate(DDP) for count in MACHINES[1:]]
            yield model, network, *(f"{rate / alone:.2f}" for rate in rates)


def servers(model: str, network: str) -> Iterator[Row]:
    """Samples a second of all-reduce and of servers, by number of machines."""
    for count in MACHINES[1:]:
        here = Machines(model, count, network)
        single = here.prediction(ONE_SERVER)
        figures = single.strategy
        moved = (figures.server_received + figures.server_sent) / 1e9 if figures else 0.0
        yield (
            str(count),
            f"{here.rate(DDP):,.0f}",
            f"{here.rate(ONE_SERVER):,.0f}",
            f"{here.rate(SERVERS):,.0f}",
            f"{here.rate(ONE_ASYNCHRONOUS):,.0f}",
            f"{moved:,.1f}",
            figures.limits if figures else "",
        )


def crossovers() -> Iterator[Row]:
    """From how many machines on asynchronous servers take more samples a second than DDP."""
    for model in MODELS:
        for network in NETWORKS:
            equal = _first(model, network, slow=False)
            mixed = _first(model, network, slow=True)
            local = _first_local(model, network)
            yield model, network, equal, mixed, local


def _first(model: str, network: str, *, slow: bool) -> str:
    for count in MACHINES[1:]:
        here = Machines(model, count, network)
        jitter = HALF_SPEED if slow else None
        loose, bound = here.rate(ASYNCHRONOUS, jitter), here.rate(DDP, jitter)
        if loose > bound:
            return f"{count} ({loose / bound:.2f} times)"
    return f"not up to {MACHINES[-1]}"


def _first_local(model: str, network: str) -> str:
    here = Machines(model, MACHINES[-1], network)
    return f"{here.rate(LOCAL) / here.rate(DDP):.2f} times"


def cores() -> Iterator[Row]:
    """VGG-16 on processor cores and on one GPU, samples a second."""
    changes = {
        "model.name": "vgg16",
        "cluster.system": "cpu",
        "cluster.device": "cpu",
        "software": "executor-cpu",
        "training.precision": "fp32",
        "training.global_batch_size": "16",
        "plan.dp": "2",
        "plan.microbatch_size": "8",
    }
    loaded = load_scenario(Path(MODELS["vgg16"][0]), changes)
    for count in (1, 2, 4, 8, 16):
        system = replace(loaded.job.system, devices_per_node=count)
        cluster = Cluster(system=system, num_nodes=1)
        job = replace(loaded.job, cluster=cluster, global_batch_size=8 * count)
        plan = replace(loaded.fixed_plan(), dp_replicate=count)
        rate = plan.global_batch_size / simulate(job, plan).step_time
        yield f"{count} core{'s' * (count > 1)}", f"{rate:,.2f}"
    yield "one V100", f"{Machines('vgg16', 1, '10Gb/s').rate(DDP):,.1f}"


def growing() -> Iterator[Row]:
    """The recommended family on four nodes of eight A100, by the size of the model."""
    for model in GROWING:
        changes = {
            "model.name": model,
            "model.seq_len": "1024",
            "cluster.nodes": "4",
            "training.global_batch_size": "64",
        }
        loaded = load_scenario(Path("scenarios/gpt3-175b-dgx-a100.yaml"), {**changes, **BARE})
        guided = guide(loaded)
        rows = {row.name: row for row in guided.rows}
        size = f"{loaded.job.model.parameters / 1e9:.1f}e9"
        fits = ["yes" if rows[name].fits else "no" for name in ("one device", "DDP")]
        chosen = guided.chosen.name if guided.chosen else "none fits"
        yield model, size, *fits, chosen, _rates(rows)


def _rates(rows: Mapping[str, FamilyRow]) -> str:
    """Samples a second of sharding and of cutting layers, where they fit."""
    named = (rows[name] for name in ("DDP", "ZeRO / FSDP", "tensor", "pipeline", "hybrid"))
    return "; ".join(f"{row.name} {row.samples_per_second:,.1f}" for row in named if row.fits)


BARE = {
    "software": "generic",
    "plan.tp": "1",
    "plan.pp": "1",
    "plan.dp": "32",
    "plan.v": "1",
    "plan.schedule": "1f1b",
    "plan.sequence_parallel": "false",
    "plan.recompute": "none",
}
"""The shipped scenario without its plan, on today's software."""
