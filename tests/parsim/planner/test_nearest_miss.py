"""Why a plan does not fit, and what would: the change itself is tried in test_cli_errors.py."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from parsim.cluster.hardware import Cluster
from parsim.cost.job import Job
from parsim.plan import Plan, Recompute
from parsim.plan.stages import Stage
from parsim.planner.changes import single_changes
from parsim.planner.nearest_miss import shortage_message
from parsim.scenario import load_scenario
from parsim.sim import simulate
from parsim.sim.confidence.memory_fit import Fit
from parsim.sim.memory.reserved import reserved_bytes
from parsim.units import format_bytes
from tests.commands import ROOT
from tests.parsim.planner.conftest import with_memory

SCENARIOS = ROOT / "scenarios"
PLAN = Plan(dp_replicate=4, num_microbatches=1, microbatch_size=8, precision="fp16")


def need(job: Job, plan: Plan) -> float:
    return max(simulate(job, plan).peak_allocated)


def test_the_message(job: Job) -> None:
    smaller = Plan(dp_replicate=4, num_microbatches=2, microbatch_size=4, precision="fp16")
    full = Plan(dp_replicate=4, microbatch_size=8, recompute=Recompute.FULL, precision="fp16")
    have = max(need(job, smaller), need(job, full)) * 1.2
    told = shortage_message(with_memory(job, have), PLAN)
    short = format_bytes(need(job, PLAN) - have)
    assert told.startswith(
        f"this plan does not fit: tp1 pp1 dp4 mb8 m1 no-pipeline needs "
        f"{format_bytes(need(job, PLAN))} on pipeline rank 0, {short} more than "
        f"{format_bytes(have)} (a100-sxm-80gb); its largest part is "
    )
    assert re.search(r"; least change that fits: \S+=\S+( with dp=\d)? \(step [\d.e-]+ s\)$", told)


def test_the_fastest_of_the_single_changes(job: Job) -> None:
    """With room for all but one byte, nothing that keeps it running fast is given up."""
    have = need(job, PLAN) - 1.0
    told = shortage_message(with_memory(job, have), PLAN)
    step = re.search(r"\(step ([\d.e-]+) s\)$", told)
    assert step is not None
    selective = Plan(
        dp_replicate=4, microbatch_size=8, recompute=Recompute.SELECTIVE, precision="fp16"
    )
    assert need(job, selective) <= have
    assert float(step[1]) <= simulate(job, selective).step_time * 1.01


def test_an_advised_change_leaves_the_margin_free(job: Job) -> None:
    """With most of the memory as margin only a change that frees most of it is advised."""
    small = with_memory(job, 0.999 * need(job, PLAN))
    told = [shortage_message(small, PLAN, margin) for margin in (0.0, 0.5, 0.99)]
    changed = [re.search(r"least change that fits: (\S+=\S+)", text) for text in told]
    assert changed[0] is not None
    assert changed[1] is not None
    assert changed[0][1] != changed[1][1]
    assert changed[2] is None


@pytest.mark.slow
def test_nothing_helps(job: Job) -> None:
    told = shortage_message(with_memory(job, 1e6), PLAN)
    assert told.endswith(
        "; no single or double change of recompute, sharding, micro-batch or degrees fits"
    )


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
def test_only_gpipe_is_advised_another_schedule(job: Job, schedule: str) -> None:
    plan = Plan(
        pp=4,
        num_microbatches=16,
        microbatch_size=2,
        schedule=schedule,
        precision="fp16",
        recompute=Recompute.FULL,
        sequence_parallel=False,
    )
    told = shortage_message(with_memory(job, need(job, plan) * 0.999), plan)
    assert ("least change that fits: schedule=1f1b" in told) == (schedule == "gpipe")


@pytest.mark.slow
def test_nodes_that_cannot_be_joined_are_not_advised(job: Job) -> None:
    """A machine without a network takes no second node: nothing fits, and that is the answer."""
    alone = replace(with_memory(job, 1e6).system, network=None)
    small = replace(job, cluster=Cluster(system=alone, num_nodes=1))
    told = shortage_message(small, PLAN)
    assert told.endswith(
        "; no single or double change of recompute, sharding, micro-batch or degrees fits"
    )


def test_as_few_recomputed_layers_as_it_takes(job: Job) -> None:
    """Where nothing is sharded and micro-batches are of one sample, some layers are the least."""
    stack = replace(job.software, zero_stages=(0,), pipeline_zero_stages=(0,))
    job = replace(job, software=stack)
    plan = replace(PLAN, microbatch_size=1, num_microbatches=8, recompute=Recompute.SELECTIVE)
    some = replace(plan, recompute_layers=2)
    small = with_memory(job, float(reserved_bytes(stack, np.array(need(job, some)))))
    assert simulate(small, some, memory_margin=0.0).fit.value == "fits"
    fewer = simulate(small, replace(some, recompute_layers=1), memory_margin=0.0)
    assert fewer.fit.value != "fits"
    told = shortage_message(small, plan, 0.0)
    assert "least change that fits: recompute_layers=2 (step " in told


def test_hosts_that_are_too_small_are_named(job: Job) -> None:
    plan = replace(PLAN, offload_layers=1)
    used = simulate(job, plan).host_bytes
    system = replace(job.system, host_memory=used / 2)
    told = shortage_message(replace(job, cluster=replace(job.cluster, system=system)), plan)
    half = format_bytes(used / 2)
    assert f"needs {format_bytes(used)} in the hosts of a node, {half} more than {half};" in told
    assert "least change that fits: offload_layers=0" in told


def test_versions_of_the_weights_are_counted_and_fewer_of_them_advised(job: Job) -> None:
    untied = replace(job, model=replace(job.model, tied_embeddings=False), clip=0.0)
    plan = Plan(pp=4, num_microbatches=8, schedule="pipedream", precision="fp32")
    fewer = replace(plan, schedule="pipedream_2bw")
    have = (need(untied, plan) + need(untied, fewer)) / 2
    told = shortage_message(with_memory(untied, have), plan, margin=0.0)
    assert "; 4 versions of its weights are " in told
    changes = [text for text, _ in single_changes(plan)]
    assert "schedule=pipedream_2bw" in changes
    assert "schedule=1f1b" in changes
    assert "schedule=" in told.split("least change that fits: ")[1]


def test_late_updates_end_with_the_flush_that_is_advised() -> None:
    stages = (Stage(layers=3, replicas=2, late_update=True), Stage(layers=1))
    plan = Plan(pp=2, num_microbatches=8, schedule="pipedream", stages=stages)
    changed = dict(single_changes(plan))
    assert changed["schedule=1f1b"].stages == (Stage(layers=3, replicas=2), Stage(layers=1))
    assert "schedule=pipedream_2bw" not in changed


def test_more_devices_are_the_fewest_on_which_a_plan_fits() -> None:
    """Adapters of Llama 3 8B on cards of 24 GB: tensor ranks halve what a device keeps frozen."""
    sets = {
        "model": "{name: llama3-8b, seq_len: 8192, lora_rank: 16}",
        "cluster": "{system: rtx-4090-node, devices_per_node: 1, nodes: 1}",
        "training": "{global_batch_size: 8, precision: bf16}",
        "plan": "{microbatch_size: 1, recompute: full}",
    }
    scenario = load_scenario(SCENARIOS / "llama3-8b-dgx-h100.yaml", sets)
    told = shortage_message(scenario.job, scenario.fixed_plan())
    advised = "2 nodes with tp=2 and sequence_parallel=true and recompute=full"
    assert f"least change that fits: {advised}" in told
    more = {"cluster.nodes": "2", "plan.tp": "2", "plan.sequence_parallel": "true"}
    fitting = load_scenario(SCENARIOS / "llama3-8b-dgx-h100.yaml", sets | more)
    assert simulate(fitting.job, fitting.fixed_plan()).fit is Fit.FITS
