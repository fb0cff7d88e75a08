"""The search against every plan simulated by itself, in random small scenarios."""

from __future__ import annotations

import random
import sys
from dataclasses import replace
from math import inf

import numpy as np
import pytest

from parsim.cluster.hardware import Cluster
from parsim.cluster.reader import load_catalog
from parsim.cost.job import Job
from parsim.cost.software import software
from parsim.model.reader import model_spec
from parsim.model.transformer import build_transformer
from parsim.plan import Plan, PlanSpace, PlanTable, Recompute
from parsim.plan.names import SCHEDULE_NAMES
from parsim.plan.space import FEWEST, Between
from parsim.planner.bounds import plan_bounds
from parsim.planner.bounds.cases import price_layers
from parsim.planner.equal.best_shapes import BestShapes
from parsim.planner.space import enumerate_plans
from parsim.planner.space.families import Families
from parsim.sim.confidence.memory_fit import Fit, fit_of, margin_of
from parsim.sim.recurrence.evaluate import evaluate
from parsim.space.axes import SETTINGS
from tests.parsim.planner.conftest import with_memory

MODELS = ("gpt2", "llama3-8b", "mixtral-8x7b")
SYSTEMS = ("dgx-a100", "dgx-h100", "dgx-1v", "rtx-4090-node")
STACKS = ("generic", "megatron-2022", "megatron-te-2025", "torchtitan", "executor-cpu")
MOST_PLANS = 48
"""Plans of a scenario: each is simulated alone."""
FEW = 8
"""Plans of a scenario of the fast test."""


@pytest.fixture(autouse=True)
def ways_of_every_schedule(monkeypatch: pytest.MonkeyPatch) -> None:
    """Raise bounds of however few plans."""
    monkeypatch.setattr(sys.modules["parsim.planner.equal.seen"], "MANY", 0)


def scenario(
    seed: int, most: int = MOST_PLANS, lora_rank: int = 0
) -> tuple[Job, PlanSpace, PlanTable] | None:
    """A short model on a few devices, and a part of its space; None where that is empty."""
    rng = random.Random(seed)
    spec = replace(model_spec(rng.choice(MODELS)), num_layers=rng.choice((3, 4, 6, 8)), seq_len=512)
    spec = replace(spec, lora_rank=lora_rank)
    node = load_catalog().system(rng.choice(SYSTEMS))
    node = replace(node, devices_per_node=rng.choice((2, 4)))
    cluster = Cluster(system=node, num_nodes=rng.choice((1, 2)))
    job = Job(model=build_transformer(spec), cluster=cluster, software=software(rng.choice(STACKS)))
    overlap = [rng.random() < 0.5 for _ in range(4)]
    common = Plan(
        precision="bf16" if "bf16" in node.device.peak_flops else "fp16",
        overlap_p2p=overlap[0],
        overlap_grad_reduce=overlap[1],
        overlap_param_gather=overlap[2],
        scatter_p2p=overlap[3],
    )
    space = PlanSpace(
        global_batch_size=rng.choice((4, 8, 12, 16)),
        schedule=tuple(rng.sample(SCHEDULE_NAMES, 4)),
        zero_stage=tuple(sorted(rng.sample((0, 1, 2, 3), 2))),
        recompute=tuple(rng.sample(tuple(Recompute), 2)),
        dp_shard=Between() if rng.random() < 0.5 else None,
        recompute_layers=rng.choice((None, (FEWEST,), (FEWEST,), Between())),
        common=common,
    )
    varied = rng.sample(sorted(SETTINGS), 2)
    space = space.with_axes({name: SETTINGS[name].every(job) for name in varied})
    table = enumerate_plans(job, space).table
    if table is None:
        return None
    rows = sorted(rng.sample(range(len(table)), min(most, len(table))))
    return job, space, table.take(np.array(rows))


def _with_fewest(job: Job, plan: Plan) -> float:
    """The step with the first number of recomputed layers that fits, tried one by one."""
    largest = max(plan.stage_layers or (-(-job.model.num_layers // plan.num_stages),))
    for layers in range(largest):
        tried = replace(plan, recompute_layers=layers)
        peak = float(evaluate(job, tried, memory=True).peak.max())
        share = margin_of(job, tried).share
        if fit_of(job.software, peak, job.usable_memory, share) is Fit.FITS:
            return evaluate(job, tried).step_time
        if plan.recompute is Recompute.FULL:
            break
    return inf


def check(seed: int, most: int = MOST_PLANS, lora_rank: int = 0) -> None:
    """The ten best of a scenario are those of brute force, and nothing fits that was left out."""
    made = scenario(seed, most, lora_rank)
    if made is None:
        return
    job, space, table = made
    plain = replace(table, recompute_layers=np.maximum(table.recompute_layers, 0))
    alone = [evaluate(job, plain.plan(row)) for row in range(len(table))]
    steps = np.array([entry.step_time for entry in alone])
    peaks = np.array([float(entry.peak.max()) for entry in alone])
    bounds = plan_bounds(job, table, price_layers(job, table), np.arange(len(table)))
    assert (bounds.step <= steps).all()
    assert (bounds.peak <= peaks).all()
    # memory that a half of the plans fit in, so that the other half has to be told apart
    tight = with_memory(job, float(np.median(peaks)) * 1.05)
    families = Families.alone(table)
    work = BestShapes(tight, families, space, 10)
    work.run(None)
    known = work.known
    assert (peaks[known.too_large] > tight.usable_memory).all()
    for row in np.flatnonzero(table.recompute_layers == FEWEST).tolist():
        steps[row] = _with_fewest(tight, plain.plan(row))
    everything = BestShapes(tight, families, space, 10**6)
    everything.run(None)
    fits = everything.known.fits
    assert (everything.known.bound[fits] <= everything.known.step[fits]).all()
    assert (np.isfinite(steps) | ~fits).all()
    assert np.allclose(everything.known.step[fits], steps[fits], rtol=1e-12, atol=0.0)
    asked = np.isfinite(steps) & (table.recompute_layers == FEWEST)
    assert fits[asked].all()
    expected = np.sort(steps[fits])[:10]
    best = [plan.step_time for plan in known.fastest(table, known.fits, 10)]
    assert best == pytest.approx(expected.tolist(), rel=1e-12)


@pytest.mark.parametrize("seed", range(12))
def test_the_search_finds_what_brute_force_does(seed: int) -> None:
    check(seed, FEW)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12, 512))
def test_the_search_finds_what_brute_force_does_in_many_scenarios(seed: int) -> None:
    check(seed)


@pytest.mark.parametrize("seed", range(512, 516))
def test_it_does_with_adapters_beside_frozen_weights(seed: int) -> None:
    check(seed, FEW, lora_rank=8)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(516, 576))
def test_it_does_with_adapters_in_many_scenarios(seed: int) -> None:
    check(seed, lora_rank=8)
