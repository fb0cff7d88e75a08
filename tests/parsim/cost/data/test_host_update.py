"""Optimizer states on the host: bytes and seconds by hand, and plans that are refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from parsim.cluster.hardware import Cluster
from parsim.cluster.reader import load_catalog
from parsim.cost.data.static_bytes import Weights, static_bytes
from parsim.cost.job import Job
from parsim.cost.legal import illegal
from parsim.cost.server_rates import STREAM_SHARE, host_rate
from parsim.cost.software import software
from parsim.errors import NoFeasiblePlan
from parsim.model.reader import model_spec
from parsim.model.transformer import build_transformer
from parsim.plan import Plan, PlanSpace, PlanTable
from parsim.planner.search import search
from parsim.sim.simulate import simulate

PLAN = Plan(dp_shard=8, zero_stage=2, microbatch_size=1, num_microbatches=8, optimizer_offload=True)


def job(system: str = "dgx-a100") -> Job:
    node = load_catalog().system(system)
    spec = replace(model_spec("llama3-8b"), num_layers=8, seq_len=2048)
    return Job(
        model=build_transformer(spec),
        cluster=Cluster(system=node, num_nodes=1),
        software=software("nemo"),
    )


def test_states_and_shared_gradients_are_in_the_hosts_memory() -> None:
    prediction, parameters = simulate(job(), PLAN), job().model.parameters
    on_device = simulate(job(), replace(PLAN, optimizer_offload=False)).fullest
    assert on_device.peak_allocated > prediction.fullest.peak_allocated
    weights = Weights(np.full((1, 1), 800.0))
    assert [float(part[0, 0]) for part in static_bytes(job(), PlanTable.of([PLAN]), weights)] == [
        1600.0,
        0.0,
        0.0,
    ]
    assert prediction.host_bytes == pytest.approx(16 * parameters)


def test_the_update_moves_30_bytes_a_parameter_at_the_rate_of_the_hosts_memory() -> None:
    work = job()
    prediction, share = simulate(work, PLAN), work.model.parameters / 8
    update = 30 * share * 8 / (STREAM_SHARE * 409.6e9)
    parts = prediction.breakdown
    assert parts["optimizer"] == pytest.approx(update + work.update_overhead, rel=1e-6)
    assert parts["host_copies"] == pytest.approx(2 * share / host_rate(work.system), rel=1e-6)


def test_a_system_that_does_not_say_its_hosts_memory_is_refused() -> None:
    work = job()
    bare = replace(work.system, host_bandwidth=None)
    message = illegal(replace(work, cluster=Cluster(system=bare, num_nodes=1)), PLAN)
    assert message is not None
    assert "host_bandwidth" in message


def test_a_search_of_both_is_what_a_simulation_says() -> None:
    """Plans of either kind come out of a search as they do alone, slower and smaller on hosts."""
    work = replace(job(), global_batch_size=64)
    space = PlanSpace(global_batch_size=64, zero_stage=(2,), tp=(1, 2), pp=(1,)).with_axes(
        {"optimizer_offload": (False, True)}
    )
    ranked = search(work, space, top=400).plans
    kinds = {plan.plan.optimizer_offload for plan in ranked}
    assert kinds == {False, True}
    for each in ranked:
        alone = simulate(work, each.plan)
        assert each.step_time == pytest.approx(alone.step_time, rel=1e-9)
        assert each.peak_allocated == pytest.approx(alone.fullest.peak_allocated, rel=1e-9)


def test_a_search_refuses_what_a_simulation_refuses() -> None:
    work = replace(job(), software=software("torchtitan"), global_batch_size=64)
    space = PlanSpace(global_batch_size=64, zero_stage=(3,)).with_axes(
        {"optimizer_offload": (True,)}
    )
    with pytest.raises(NoFeasiblePlan, match="optimizer_offload=true with zero_stage=3: shards"):
        search(work, space)


def test_without_zero_every_rank_has_all_states_on_its_host() -> None:
    """Nor do ranks that share out a text share out its states."""
    whole = simulate(job(), replace(PLAN, dp_replicate=4, dp_shard=1, cp=2, zero_stage=0))
    assert whole.host_bytes == pytest.approx(8 * 16 * job().model.parameters)
