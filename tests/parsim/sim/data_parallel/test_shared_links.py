"""Strategies on shared links: the simulator's own rates, the law of a shared link, background."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from parsim.arrays import Array
from parsim.cluster.background import Background, Stream
from parsim.cluster.topology import Graph, build_graph
from parsim.cost.jitter import Jitter
from parsim.errors import InputError
from parsim.plan.strategies import (
    AsynchronousGossip,
    AsynchronousServer,
    DiLoCo,
    Gossip,
    LocalSGD,
    ParameterServer,
    SingleProcess,
    Strategy,
)
from parsim.scenario import load_scenario
from parsim.sim.contention.contention import Contention, simulate_contention
from parsim.sim.data_parallel.pace import rounds_of
from parsim.sim.data_parallel.priced_strategy import PricedStrategy
from parsim.sim.data_parallel.shared_links import OnFabric, contended_timeline_of, contention_of
from parsim.sim.events.fabric import Fabric
from parsim.sim.recurrence.evaluate import evaluate
from parsim.sim.rounds.linked_run import run_on_links
from parsim.sim.rounds.rounds_end import RoundsEnd
from parsim.sim.traffic.step_traffic import Role, Sent
from parsim.strategy.program import StepProgram
from tests.parsim.sim.data_parallel.cases import job, plan, predicted
from tests.parsim.sim.rounds.servers import prices, server
from tests.parsim.sim.rounds.test_run import exact_rate, rate

IN_STEP: list[tuple[Strategy, int]] = [
    (SingleProcess(), 1),
    (ParameterServer(servers=1), 2),
    (ParameterServer(on="devices"), 2),
    (Gossip(), 2),
    (LocalSGD(every=4, node_every=2), 2),
    (DiLoCo(every=3), 2),
]


@cache
def wide() -> Graph:
    """Two nodes whose PCI Express and NVLinks hold nothing back: interfaces alone do."""
    graph = build_graph(job(2).cluster)
    return graph.scaled("pcie", 100.0).scaled("nvlink", 100.0).scaled("cpu", 100.0)


def contended(strategy: Strategy, nodes: int = 2, **options: Any) -> Contention:
    return contention_of(job(nodes), plan(strategy, 8 * nodes), **options)


@pytest.mark.parametrize("servers", [1, 2])
def test_interfaces_take_what_their_queues_take(servers: int) -> None:
    """Fair shares of one link end the last message when its queue does, on narrow links too."""
    strategy = ParameterServer(servers=servers)
    usual = contended(strategy, graph=wide())
    assert usual.alone == predicted(strategy).step_time
    assert usual.step_time == pytest.approx(usual.alone, rel=0.01)
    assert usual.bottleneck is not None
    assert usual.bottleneck.link_class == "nic"
    tenth, twentieth = (
        contended(strategy, graph=wide().scaled("nic", share), whole=wide())
        for share in (0.1, 0.05)
    )
    size = 4.0 * job().model.parameters
    network = job().system.network
    assert network is not None
    rates = network.node_bandwidth * network.efficiency
    more = (8.0 / servers) * (size + size / 2.0) / rates  # pushed in fp32, pulled in 16 bit
    assert twentieth.step_time - tenth.step_time == pytest.approx(10.0 * more, rel=0.02)


@pytest.mark.parametrize(("strategy", "nodes"), IN_STEP, ids=str)
def test_shared_links_are_never_faster(strategy: Strategy, nodes: int) -> None:
    result = contended(strategy, nodes)
    assert result.step_time >= result.alone * (1.0 - 1e-6)
    assert result.bottleneck is not None
    for use in result.classes:
        assert 0.0 <= use.saturated <= use.busy <= result.step_time * (1.0 + 1e-9)


@pytest.mark.parametrize(
    "strategy",
    [AsynchronousServer(servers=1, updates=20), AsynchronousGossip(updates=20),
     ParameterServer(servers=1, backup_workers=2)],
    ids=str,
)  # fmt: skip
def test_what_depends_on_arrival_shares_links_too(strategy: Strategy) -> None:
    result = contended(strategy, 1)
    assert result == contended(strategy, 1)
    assert result.step_time >= 0.9 * result.alone


def test_a_worker_beside_the_only_server_needs_no_interface() -> None:
    """One card a node: who has the server in its node waits for nobody's messages to it."""
    changes = {
        "cluster.nodes": "8",
        "cluster.devices_per_node": "1",
        "cluster.network": "{nics_per_node: 1, nic_bandwidth: 10Gb/s}",
        "plan.dp": "8",
        "plan.strategy": "{name: asynchronous_server, servers: 1, updates: 60}",
    }
    scenario = load_scenario(Path("scenarios/resnet50-dgx-1v.yaml"), changes)
    job, plan = scenario.job, scenario.fixed_plan()
    quiet = Jitter(speed_spread=0.0, noise=0.0, hiccups=0.0)
    strategy = PricedStrategy.of(evaluate(job, plan.whole_models), plan)
    ends = rounds_of(strategy, quiet).finished[10:]
    seconds = strategy.priced.seconds
    near, far = np.diff(ends[:, 0]).mean(), np.diff(ends[:, 1:], axis=0).mean()
    passes = strategy.workers.compute[0]
    alone = passes + 2.0 * seconds["push_latency"][0] + seconds["apply 0"][0]
    assert near == pytest.approx(alone, rel=0.05)  # but for the server's memory
    assert far == pytest.approx(7.0 * seconds["push in 0"][0], rel=0.01)  # seven share the way in
    shared = contention_of(job, plan, jitter=quiet)
    assert shared.step_time >= shared.alone


def test_all_reduced_gradients_are_answered_as_before() -> None:
    chosen = plan()
    assert contention_of(job(), chosen) == simulate_contention(job(), chosen)


def test_a_slow_worker_holds_back_who_waits_for_it() -> None:
    slow = Jitter(slow_ranks=((0, 3.0),))
    assert contended(Gossip(), jitter=slow).step_time > 2.0 * contended(Gossip()).step_time


def test_background_takes_its_share_of_the_links() -> None:
    """Copies to the host share the cables on which gradients go there."""
    stream = Stream(name="offload", source="devices", target="hosts", rate=3e9)
    strategy = ParameterServer(servers=1)
    result = contended(strategy, 1, background=Background(streams=(stream,)))
    assert result.quiet == pytest.approx(contended(strategy, 1).step_time)
    assert result.step_time > 1.1 * (result.quiet or 0.0)


def test_background_that_comes_with_steps_is_refused() -> None:
    stream = Stream(name="batches", source="hosts", target="devices", size=1e6)
    with pytest.raises(
        InputError, match="batches: beside strategy gossip only streams with a rate"
    ):
        contended(Gossip(), 1, background=Background(streams=(stream,)))


def test_the_drawn_rounds_are_those_of_shared_links() -> None:
    chosen = plan(ParameterServer(servers=1))
    timeline, curves = contended_timeline_of(job(), chosen)
    assert {span.kind for span in timeline.spans} >= {"F", "B", "PUSH", "PULL", "OPTIMIZER"}
    longest = max(span.end for span in timeline.spans)
    assert longest == pytest.approx(contended(ParameterServer(servers=1)).step_time, rel=0.02)
    assert any(max(curve.used) > 0.95 for curve in curves)


@dataclass(frozen=True)
class OneLink:
    """A single link of a rate of one byte a second, which all cross."""

    effective: Array
    link_class: tuple[str, ...] = ("wire",)
    names: tuple[str, ...] = ("wire",)

    def route(self, rank_a: int, rank_b: int) -> tuple[int, ...]:
        return (0,)


def on_one_link(program: StepProgram, service: float, slow: Array) -> RoundsEnd:
    """The workers of a program whose updates are messages of so many bytes on one link."""
    update = replace(program.task("update"), routes=("push",), queues=(), price="service")
    program = replace(program, tasks=(*program.tasks[:-1], update))
    ranks = range(program.ranks)
    alone = Sent(usage={0: 1.0}, limit=1.0, latency_share=0.0)
    fabric = Fabric([{Role("update", rank): alone for rank in ranks}], OneLink(np.ones(1)))
    return run_on_links(
        program, prices([1.0] * program.ranks, service), OnFabric(fabric), slow=slow
    )


def exponential(rounds: int, workers: int) -> Array:
    return np.random.default_rng(1).exponential(size=(rounds, workers))


def constant(rounds: int, workers: int) -> Array:
    """Half of all rounds take nothing and half of them twice the mean."""
    return np.asarray(2.0 * np.random.default_rng(2).integers(0, 2, size=(rounds, workers)))


@pytest.mark.parametrize("think", [exponential, constant])
def test_a_shared_link_has_the_rate_of_mean_value_analysis(
    think: Callable[[int, int], Array],
) -> None:
    """A link that all share fairly is insensitive: X = N / (Z + S (1 + Q)) for any times.

    (Baskett, Chandy, Muntz and Palacios, JACM 22(2), 1975; a queue reaches more, M/D/1-like.)
    """
    workers, rounds = 4, 700
    end = on_one_link(server(workers, rounds), 0.25, think(rounds, workers))
    assert exact_rate(workers, 1.0, 0.25) == pytest.approx(284 / 103)
    assert rate(end) == pytest.approx(284 / 103, rel=0.03)


@pytest.mark.parametrize("workers", [1, 4, 8])
def test_messages_that_start_together_end_where_a_queue_ends(workers: int) -> None:
    """n equal messages on one link: all end after n S, the last one as in a queue."""
    end = on_one_link(server(workers, 1), 0.25, np.ones((1, workers)))
    assert end.finished[0] == pytest.approx([1.0 + 0.25 * workers] * workers)
