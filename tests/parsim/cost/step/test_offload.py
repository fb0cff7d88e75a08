"""Copies to the host beside a stage's compute: rates, exposed time, bytes, both tiers."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from parsim.cluster.hardware import Cable, Cluster, System
from parsim.cluster.reader import load_catalog
from parsim.cost.job import Job
from parsim.cost.legal import illegal
from parsim.cost.server_rates import STREAM_SHARE, host_link, host_rate
from parsim.cost.software import software
from parsim.cost.step.layer_table import LayerTable
from parsim.cost.step.offload import BUFFERED, moved_bytes
from parsim.cost.step.step import step_costs
from parsim.cost.streams import COMPUTE, StreamTask, run
from parsim.errors import PlanError
from parsim.model.reader import model_spec
from parsim.model.transformer import build_transformer
from parsim.plan import Plan, PlanTable, Recompute
from parsim.plan.rules.violation import check_plan
from parsim.sim.confidence.memory_fit import Fit
from parsim.sim.simulate import simulate

LAYERS = 8


@cache
def job(system: str = "dgx-h100", stack: str = "nemo", link: float = 1.0) -> Job:
    spec = replace(model_spec("llama3-8b"), num_layers=LAYERS, seq_len=2048)
    node = load_catalog().system(system)
    if link != 1.0:
        node = slower(node, link)
    return Job(
        model=build_transformer(spec),
        cluster=Cluster(system=node, num_nodes=1),
        software=software(stack),
    )


def slower(node: System, link: float) -> System:
    """The node with links to its host of another speed, cable by cable."""
    rate = link * host_link(node)
    hosts = tuple(Cable(f"gpu:{d}", "host:0", "pcie", rate) for d in range(node.devices_per_node))
    joined = tuple(
        Cable(f"gpu:{d}", "nvswitch:0", "nvlink", 450e9) for d in range(node.devices_per_node)
    )
    return replace(node, topology=(*hosts, *joined), host_bandwidth=None)


PIPELINE = Plan(tp=2, pp=4, microbatch_size=1, num_microbatches=8)


def test_copies_are_as_fast_as_the_link_or_the_share_of_the_hosts_memory() -> None:
    h100, grace = load_catalog().system("dgx-h100"), load_catalog().system("gb200-nvl72")
    assert host_rate(h100) == host_link(h100) < STREAM_SHARE * 614.4e9 / 8
    assert host_link(grace) == 450e9
    assert host_rate(grace) == pytest.approx(0.8 * 18.4e12 / 72)
    assert host_rate(replace(grace, host_bandwidth=None)) == 450e9


def test_copies_that_fit_under_the_compute_cost_nothing_but_free_memory() -> None:
    without, with_one = (
        simulate(job(link=1e3), replace(PIPELINE, offload_layers=n)) for n in (0, 1)
    )
    assert with_one.step_time == without.step_time
    assert with_one.breakdown["exposed_offload"] == 0.0
    # rank 0 has four micro-batches in flight, and one layer on its way
    assert with_one.peak_allocated[0] < without.peak_allocated[0]


def test_a_processor_copies_in_line_and_finds_its_copies() -> None:
    cpu, plan = job("cpu", "executor-cpu"), Plan(num_microbatches=2)
    tables = [PlanTable.of([replace(plan, offload_layers=n)]) for n in (0, 4)]
    alone, moved = (step_costs(cpu, table) for table in tables)
    size = 4 * float(LayerTable.of(cpu, tables[1]).moved[0][0])
    seconds = 2.0 * size / (cpu.device.memory_bandwidth * cpu.device.memory_efficiency)
    assert moved.forward - alone.forward == pytest.approx(seconds)
    assert moved.backward == pytest.approx(alone.backward)


@pytest.mark.parametrize("schedule", ["1f1b", "gpipe", "interleaved_1f1b"])
@pytest.mark.parametrize("zero_stage", [0, 3])
def test_passes_last_as_long_as_their_copies(schedule: str, zero_stage: int) -> None:
    v = 2 if schedule == "interleaved_1f1b" else 1
    plan = replace(PIPELINE, tp=1, pp=2, schedule=schedule, v=v, zero_stage=zero_stage)
    plan = replace(plan, dp_replicate=1 if zero_stage else 4, dp_shard=4 if zero_stage else 1)
    plain = step_costs(job(link=0.1), PlanTable.of([plan]))
    for count in (1, 2):
        table = PlanTable.of([replace(plan, offload_layers=count)])
        layers = LayerTable.of(job(link=0.1), table)
        costs, cut = step_costs(job(link=0.1), table, layers), (LAYERS // (2 * v),) * 2 * v
        copies = moved_bytes(job(), table, layers, cut) / (0.1 * host_link(job().system))
        assert costs.forward == pytest.approx(np.maximum(plain.forward, copies))
        assert costs.backward == pytest.approx(np.maximum(plain.backward, copies))
        assert costs.copied_forward is not None
        assert costs.exposed_forward - plain.exposed_forward == pytest.approx(costs.copied_forward)


@pytest.mark.parametrize("copy", [0.2, 0.8, 1.5])
@pytest.mark.parametrize("moved", [3, 6, 12])
def test_the_closed_form_is_that_of_the_tasks_of_many_passes(copy: float, moved: int) -> None:
    """Twelve layers of a second each; copies spread over the pass as Transformer Engine does."""
    layers, passes = 12, 20
    window = layers // moved
    tasks: list[StreamTask] = []
    last: dict[int, int] = {}  # copy that the layer with this number waits for
    kernels: list[int] = []
    for number in range(layers * passes):
        after = (last.pop(number),) if number in last else ()
        tasks.append(StreamTask(stream=COMPUTE, seconds=np.array([1.0]), after=after))
        kernels.append(len(tasks) - 1)
        if number % layers < moved:
            done = number - number % layers + (number % layers + 1) * window + BUFFERED - 1
            tasks.append(StreamTask(stream="copy", seconds=np.array([copy]), after=(kernels[-1],)))
            last[done] = len(tasks) - 1
    took = float(run(tasks, np.ones(1)).duration[0])
    closed = passes * max(layers * 1.0, moved * copy)
    assert closed - 1e-9 <= took <= closed + (BUFFERED + moved) * max(copy, 1.0)


def test_bytes_on_device_and_host_by_hand() -> None:
    plan = replace(PIPELINE, tp=1, pp=1, dp_replicate=8, num_microbatches=1)
    table = PlanTable.of([replace(plan, offload_layers=3)])
    each = float(LayerTable.of(job(), table).moved[0][0])
    without, moved = simulate(job(), plan), simulate(job(), table.plan(0))
    assert without.memory["activations"] - moved.memory["activations"] == pytest.approx(3 * each)
    assert moved.memory["temporary"] - without.memory["temporary"] == pytest.approx(2 * each)
    assert moved.host_bytes == pytest.approx(8 * 3 * each)
    assert sum(moved.activations.values()) == pytest.approx(moved.memory["activations"])


@pytest.mark.parametrize("stack", ["nemo", "executor-cpu"])
def test_recurrence_and_events_agree(stack: str) -> None:
    plan = replace(PIPELINE, offload_layers=2, dp_replicate=1)
    slow = job(stack=stack, link=0.1)
    drawn = simulate(slow, plan, tier="events", timeline=True)
    assert drawn.breakdown["exposed_offload"] > 0.0
    assert sum(drawn.breakdown.values()) == pytest.approx(drawn.step_time)


def test_copies_are_drawn_on_a_lane_of_their_own() -> None:
    plan = replace(PIPELINE, offload_layers=2)
    timeline = simulate(job(link=0.1), plan, timeline=True).timeline
    assert timeline is not None
    copies = [span for span in timeline.spans if span.stream == "offload"]
    assert {span.kind for span in copies} == {"OFFLOAD", "RELOAD"}
    assert len(copies) == 2 * 4 * 8
    assert not any(span.kind == "SHARD" for span in timeline.spans)
    forward = next(s for s in timeline.spans if s.kind == "F" and s.stage == 1)
    out = next(s for s in copies if s.kind == "OFFLOAD" and s.stage == 1)
    assert out.start == forward.start
    assert out.end == pytest.approx(forward.end)


def test_hosts_without_room_do_not_fit() -> None:
    small = job(link=1.0)
    node = replace(small.system, host_memory=1e9)
    short = replace(small, cluster=Cluster(system=node, num_nodes=1))
    assert simulate(small, replace(PIPELINE, offload_layers=2)).fit is Fit.FITS
    assert simulate(short, replace(PIPELINE, offload_layers=2)).fit is Fit.TOO_LARGE
    assert simulate(short, PIPELINE).fit is Fit.FITS


def test_on_a_processor_the_host_is_the_device() -> None:
    cpu = job("cpu", "executor-cpu")
    plan = Plan(num_microbatches=2, dp_replicate=cpu.cluster.num_devices)
    alone, moved = (simulate(cpu, replace(plan, offload_layers=n)) for n in (0, 4))
    assert moved.peak_allocated == alone.peak_allocated
    assert moved.host_bytes == 0.0
    assert any("copies free nothing" in note for note in moved.notes)


BAD = {
    "largest of which has 2; allowed: 0 to 2": Plan(offload_layers=3),
    "needs offload_layers": Plan(offload_modules=("core_attn",)),
    "offload_modules='attn' is unknown": Plan(offload_layers=1, offload_modules=("attn",)),
    "schedule='zb_h1' needs what I brought back": Plan(offload_layers=1, schedule="zb_h1"),
    "schedule='dualpipe' needs what I brought": Plan(offload_layers=1, schedule="dualpipe"),
    "keeps its input alone": Plan(
        offload_layers=1, offload_modules=("mlp",), recompute=Recompute.FULL
    ),
}


@pytest.mark.parametrize("message", BAD)
def test_plans_that_cannot_be(message: str) -> None:
    plan = replace(BAD[message], tp=2, pp=4, num_microbatches=8)
    with pytest.raises(PlanError, match=message):
        check_plan(plan, job().model, job().cluster)


def test_a_system_without_a_link_to_its_host_moves_nothing() -> None:
    node = job().system
    joined = tuple(Cable(f"gpu:{d}", "nvswitch:0", "nvlink", 450e9) for d in range(8))
    alone = replace(job(), cluster=Cluster(system=replace(node, topology=joined), num_nodes=1))
    message = illegal(alone, replace(PIPELINE, offload_layers=1))
    assert message is not None
    assert "no cable from a device to its host" in message


def test_halves_of_products_have_no_modules() -> None:
    plan = Plan(dp_shard=8, zero_stage=3, recompute=Recompute.SELECTIVE, offload_layers=1)
    assert illegal(job(stack="torchtitan"), plan) is None
    message = illegal(job(stack="torchtitan"), replace(plan, offload_modules=("mlp",)))
    assert message is not None
    assert "every second product" in message
