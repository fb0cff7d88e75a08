"""Background streams: free where nothing meets them, and their mean cost where something does."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from parsim.cluster.background import Background, Stream
from parsim.cluster.reader import load_catalog
from parsim.cluster.topology import build_graph
from parsim.cluster.topology.storage import stream_links, with_storage
from parsim.cost.job import Job
from parsim.errors import CatalogError, InputError
from parsim.plan import Plan
from parsim.sim.contention.contention import Contention, contended_timeline, simulate_contention
from tests.parsim.sim.conftest import PLANS

PLAN = Plan(dp_replicate=16, num_microbatches=2)


def stream(
    source: str = "devices",
    target: str = "hosts",
    size: float | None = 1e6,
    rate: float | None = None,
    every: int = 1,
    name: str = "copies",
) -> Stream:
    return Stream(name=name, source=source, target=target, size=size, rate=rate, every=every)  # type: ignore[arg-type]


def beside(job: Job, *streams: Stream, storage: float = 1e12, plan: Plan = PLAN) -> Contention:
    result = Background(streams=streams, storage_bandwidth=storage)
    return simulate_contention(job, plan, background=result)


def test_a_tiny_stream_costs_nothing(job: Job) -> None:
    quiet = simulate_contention(job, PLAN)
    result = beside(job, stream(size=1.0))
    assert result.quiet == quiet.step_time
    assert result.step_time == pytest.approx(quiet.step_time, rel=1e-6)
    assert result.streams[0].seconds == pytest.approx(1.0 / 24e9, rel=1e-9)


def test_a_copy_alone_takes_its_bytes_over_the_narrowest_link(job: Job) -> None:
    """Two devices share a PCIe switch of the DGX A100 and its way to the host."""
    graph = build_graph(job.cluster)
    used = stream_links(graph, stream(), range(16), np.arange(16) // 8)
    seconds = max(units / graph.effective[link] for link, units in used.items())
    result = beside(job, stream(size=1e8), plan=Plan(dp_replicate=16, num_microbatches=8))
    assert result.streams[0].seconds == pytest.approx(1e8 * seconds, rel=1e-9)
    assert result.streams[0].bottleneck is not None
    assert result.streams[0].bottleneck.link_class == "pcie"


@pytest.mark.parametrize(("source", "target"), [("devices", "hosts"), ("hosts", "devices")])
def test_copies_share_pcie_with_gradients_of_their_direction(
    job: Job, source: str, target: str
) -> None:
    """Gradients go down to the interface and come up from it, so that both directions meet."""
    result = beside(job, stream(source, target, size=None, rate=20e9))
    assert result.quiet is not None
    assert result.step_time > 1.01 * result.quiet
    assert result.bottleneck is not None
    assert result.bottleneck.link_class == "pcie"
    assert result.bottleneck.saturated > 0.0


def test_a_higher_rate_is_never_faster(job: Job) -> None:
    times = [beside(job, stream(size=None, rate=rate)).step_time for rate in (1e9, 8e9, 16e9)]
    assert times == sorted(times)


def test_a_step_waits_for_its_batches(job: Job) -> None:
    result = beside(job, stream("storage", "hosts", size=1e9), storage=1e9)
    assert result.step_time == pytest.approx(2.0, rel=1e-6)  # two nodes' 1 GB from 1 GB/s
    assert result.streams[0].bottleneck is not None
    assert result.streams[0].bottleneck.link == "disks:0->storage:0"


def test_a_checkpoint_costs_its_delay_over_the_steps_between(job: Job) -> None:
    often, seldom = (
        beside(job, stream("devices", "storage", size=6e9, every=every)) for every in (10, 100)
    )
    assert often.quiet is not None
    assert often.streams[0].cost > 0.0
    assert often.streams[0].cost == pytest.approx(10.0 * seldom.streams[0].cost, rel=1e-9)
    assert often.step_time == pytest.approx(often.quiet + often.streams[0].cost, rel=1e-12)


def test_a_checkpoint_that_never_ends_in_time_is_the_pace(job: Job) -> None:
    """16 devices' 10 GB into 10 GB/s every second step: 16 s for two steps."""
    result = beside(job, stream("devices", "storage", size=1e10, every=2), storage=1e10)
    assert result.streams[0].overdue
    assert result.step_time == pytest.approx(8.0, rel=1e-6)


def test_a_long_checkpoint_goes_on_as_it_began(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    first = stream("devices", "storage", size=2e9, every=1000)
    some = beside(job, first)
    monkeypatch.setattr("parsim.sim.contention.stream_cost.MOST_STEPS", 1000)
    every = beside(job, first)
    assert some.streams[0].seconds == pytest.approx(every.streams[0].seconds, rel=0.05)
    assert some.streams[0].cost == pytest.approx(every.streams[0].cost, rel=0.2, abs=1e-5)


def test_every_plan_runs_beside_streams(job: Job, plan: Plan) -> None:
    streams = (
        stream("storage", "hosts", size=1e7, name="batches"),
        stream("devices", "storage", size=1e8, every=50, name="checkpoint"),
        stream("devices", "hosts", size=None, rate=1e9, name="offload"),
    )
    result = beside(job, *streams, plan=plan)
    assert result.quiet is not None
    assert result.step_time >= result.quiet * (1.0 - 1e-9)
    assert [entry.stream.name for entry in result.streams] == ["batches", "checkpoint", "offload"]


def test_storage_hangs_on_the_highest_switches(job: Job) -> None:
    assert job.system.network is not None
    network = replace(job.system.network, nodes_per_leaf=1, spines=2)
    spread = replace(job.cluster, system=replace(job.system, network=network))
    for cluster, kind in ((job.cluster, "leaf"), (spread, "spine")):
        graph = with_storage(build_graph(cluster), 1e11)
        joined = [graph.link(i) for i in range(graph.num_links) if graph.link_class[i] == "storage"]
        ends = {entry.source.partition(":")[0] for entry in joined if entry.target == "storage:0"}
        assert ends == {kind, "disks"}


def test_host_traffic_is_spread_over_the_interfaces_of_a_node(job: Job) -> None:
    graph = with_storage(build_graph(job.cluster), 1e11)
    used = stream_links(graph, stream("hosts", "storage"), range(16), np.arange(16) // 8)
    nics = {i: units for i, units in used.items() if graph.link_class[i] == "nic"}
    assert len(nics) == 16
    assert set(nics.values()) == {1 / 8}


def test_the_trace_begins_with_the_checkpoint(job: Job) -> None:
    result = Background(
        streams=(stream("devices", "storage", size=1e9, every=9),), storage_bandwidth=1e11
    )
    _, links = contended_timeline(job, PLANS["1f1b"], background=result)
    curve = next(link for link in links if link.link_class == "storage")
    assert curve.used[0] > 0.0


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (stream("hosts", "hosts"), "two different ones"),
        (stream(rate=1e9), "either size"),
        (stream(size=None), "either size"),
        (stream(size=None, rate=1e9, every=3), "flows all the time"),
    ],
)
def test_a_stream_that_cannot_run_is_refused(wrong: Stream, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Background(streams=(wrong,)).check()


def test_storage_needs_a_bandwidth_and_a_network(job: Job) -> None:
    first = stream("hosts", "storage")
    with pytest.raises(InputError, match="storage_bandwidth is missing"):
        Background(streams=(first,)).check()
    with pytest.raises(InputError, match="stands there twice"):
        Background(streams=(stream(), stream())).check()
    cpu = replace(
        job, cluster=replace(job.cluster, system=load_catalog().system("cpu"), num_nodes=1)
    )
    with pytest.raises(CatalogError, match="no network"):
        beside(cpu, first, plan=Plan(dp_replicate=2, precision="fp32"))
    with pytest.raises(CatalogError, match="has no part host"):
        beside(cpu, stream(), plan=Plan(dp_replicate=2, precision="fp32"))


def test_a_failed_interface_leaves_its_share_to_the_others(job: Job) -> None:
    broken = build_graph(replace(job.cluster, failed=("nic:0.3",)))
    graph = with_storage(broken, 1e11)
    used = stream_links(graph, stream("hosts", "storage"), range(16), np.arange(16) // 8)
    nics = [units for i, units in used.items() if graph.link_class[i] == "nic"]
    assert sorted(nics) == pytest.approx([1 / 8] * 8 + [1 / 7] * 7)
