"""BPipe in seconds and bytes: what messages beside passes cost, and who holds what."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from parsim.cluster.hardware import Cluster
from parsim.cluster.reader import load_catalog
from parsim.cost.job import Job
from parsim.cost.legal import illegal
from parsim.cost.software import software, with_switches
from parsim.cost.step.layer_table import LayerTable
from parsim.model.reader import model_spec
from parsim.model.transformer import build_transformer
from parsim.plan import Plan, PlanTable
from parsim.schedule import schedule_of
from parsim.sim import simulate
from parsim.sim.recurrence.evaluate import evaluate
from parsim.sim.step.kept_bytes import evicted_bytes, eviction_seconds, stage_kept
from parsim.timelines.kinds import SpanKind

PLAN = Plan(pp=8, num_microbatches=16, schedule="bpipe", overlap_p2p=False)
PLAIN = replace(PLAN, schedule="1f1b")


def job(network_share: float | None = None, stack: str = "megatron-te-2025") -> Job:
    """GPT-3's layers, two to a stage: on one node, or on eight with a share of the network."""
    spec = replace(model_spec("gpt3-175b"), num_layers=16)
    node = load_catalog().system("dgx-a100")
    if network_share is None or node.network is None:
        return Job(
            model=build_transformer(spec),
            cluster=Cluster(system=node, num_nodes=1),
            software=software(stack),
        )
    slow = replace(node.network, nic_bandwidth=node.network.nic_bandwidth * network_share)
    alone = replace(node, devices_per_node=1, network=slow)
    cluster = Cluster(system=alone, num_nodes=8)
    return Job(model=build_transformer(spec), cluster=cluster, software=software(stack))


def test_messages_beside_longer_passes_cost_nothing() -> None:
    fast = job()
    assert simulate(fast, PLAN).step_time == simulate(fast, PLAIN).step_time


def test_longer_messages_stretch_passes_of_the_ranks_that_send() -> None:
    slow, table = job(0.05), PlanTable.of([PLAN])
    schedule, layers = schedule_of(PLAN), LayerTable.of(slow, table)
    messages = eviction_seconds(slow, table, layers, schedule)[:, 0]
    assert (messages[:3] > 0).all()
    assert not messages[3:].any()
    plain, balanced = evaluate(slow, PLAIN), evaluate(slow, PLAN)
    for name in ("forward", "backward"):
        alone = getattr(plain.step.costs, name)[:, 0]
        together = getattr(balanced.step.costs, name)[:, 0]
        assert together == pytest.approx(np.maximum(alone, messages), rel=1e-12)
    assert balanced.step_time > plain.step_time


@pytest.mark.parametrize("share", [None, 0.05])
def test_tiers_agree_and_parts_add_up(share: float | None) -> None:
    result = simulate(job(share), PLAN, tier="events", timeline=True)
    assert sum(result.breakdown.values()) == pytest.approx(result.step_time, rel=1e-12)
    assert sum(result.memory.values()) == pytest.approx(max(result.peak_allocated), rel=1e-12)
    assert (result.breakdown["exposed_offload"] > 0) == (share is not None)
    assert result.timeline is not None
    spans = [s for s in result.timeline.spans if s.kind in (SpanKind.OFFLOAD, SpanKind.RELOAD)]
    assert {span.rank for span in spans} == {0, 1, 2}
    for curve in result.timeline.memory:
        assert max(curve.bytes) == pytest.approx(result.peak_allocated[curve.rank], rel=1e-12)


def test_memory_is_that_of_the_counts() -> None:
    """5 micro-batches on ranks 0 to 3 instead of 8, 7, 6, 5; ranks 5, 6, 7 hold 2, 3, 4 more."""
    balanced, plain = simulate(job(), PLAN), simulate(job(), PLAIN)
    table = PlanTable.of([PLAN])
    evaluation = evaluate(job(), PLAN)
    layers = evaluation.step.pricing.layers(0)
    counts = np.ones((8, 1)) * 2.0
    kept = stage_kept(job(), table, layers, counts)[:, 0]
    more = np.array(
        [-3 * kept[0], -2 * kept[1], -kept[2], 0, 0, 2 * kept[2], 3 * kept[1], 4 * kept[0]]
    )
    change = np.array(balanced.peak_allocated) - np.array(plain.peak_allocated)
    assert change == pytest.approx(more, rel=1e-9, abs=1.0)
    sent = evicted_bytes(job(), table, layers, schedule_of(PLAN))[:, 0]
    assert sent == pytest.approx([*kept[:3], 0, 0, 0, 0, 0])
    assert max(balanced.peak_allocated) < max(plain.peak_allocated)


def test_what_bpipe_does_not_go_with() -> None:
    message = illegal(job(), replace(PLAN, offload_layers=1))
    assert message == (
        "offload_layers=1: schedule='bpipe' moves activations to other ranks already; use "
        "offload_layers=0, or schedule='1f1b'"
    )
    assert "bpipe" in (illegal(job(), replace(PLAN, v=2)) or "")
    on_cpu = job(stack="executor-cpu")
    sharded = replace(PLAN, pp=4, dp_shard=2, zero_stage=2)
    assert "zero_stage=2 saves gathered parameters" in (illegal(on_cpu, sharded) or "")
    assert illegal(on_cpu, replace(sharded, zero_stage=1)) is None
    compiled = replace(on_cpu, software=with_switches(on_cpu.software, {"compile": True}))
    assert "what layers save is sent to another rank" in (illegal(compiled, PLAN) or "")
