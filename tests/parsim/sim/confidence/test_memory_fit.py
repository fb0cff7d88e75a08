"""Fits, tight, does not fit: the words at their borders, and that all commands say the same."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from parsim import api
from parsim.cost.software import software
from parsim.plan import Plan, PlanTable, Recompute
from parsim.scenario import load_scenario, scenario_text
from parsim.sim import simulate
from parsim.sim.confidence.memory_fit import STATED, Fit, fit_of, has_room, margin_of, margin_shares
from parsim.units import GIB
from tests.commands import LLAMA
from tests.parsim.planner.conftest import with_memory
from tests.parsim.sim.conftest import PLANS, gpt_job

CUDA, CPU = software("megatron-2022"), software("executor-cpu")


@pytest.mark.parametrize(
    ("peak", "margin", "word"),
    [
        (7.59, 0.2, Fit.FITS),  # 7.59 x 1.053 = 7.99 of 10 x 0.8
        (7.61, 0.2, Fit.TIGHT),
        (9.49, 0.0, Fit.FITS),
        (9.51, 0.0, Fit.TIGHT),
        (10.0, 0.0, Fit.TIGHT),
        (10.01, 0.0, Fit.TOO_LARGE),
        (10.01, 0.5, Fit.TOO_LARGE),
    ],
)
def test_the_words_by_hand(peak: float, margin: float, word: Fit) -> None:
    assert CUDA.reserved_share == 0.053
    assert fit_of(CUDA, peak * GIB, 10.0 * GIB, margin) is word
    assert (word is Fit.FITS) == bool(has_room(CUDA, np.array(peak * GIB), 10.0 * GIB, margin))


def test_a_device_without_a_caching_allocator_needs_no_reserve() -> None:
    assert fit_of(CPU, 10.0 * GIB, 10.0 * GIB, 0.0) is Fit.FITS


@pytest.mark.parametrize("recompute", Recompute)
def test_a_plan_that_just_fits_does_so_at_the_upper_end_of_its_interval(
    recompute: Recompute,
) -> None:
    job, plan = gpt_job(), replace(PLANS["1f1b"], recompute=recompute)
    prediction = simulate(job, plan)
    upper = (
        prediction.peak_interval[1] * max(prediction.peak_reserved) / max(prediction.peak_allocated)
    )
    assert simulate(with_memory(job, upper * 1.0001), plan).fit is Fit.FITS
    assert simulate(with_memory(job, upper * 0.9999), plan).fit is Fit.TIGHT
    assert simulate(with_memory(job, max(prediction.peak_allocated) - 1), plan).fit is Fit.TOO_LARGE


def test_a_table_has_the_margins_of_its_plans() -> None:
    job = gpt_job()
    plans = [
        Plan(dp_replicate=16, num_microbatches=2, microbatch_size=size, recompute=mode)
        for size in (1, 2, 64)
        for mode in Recompute
    ]
    shares = margin_shares(job, PlanTable.of(plans))
    assert shares.tolist() == [margin_of(job, plan).share for plan in plans]
    assert len(set(shares.tolist())) > 1
    assert margin_shares(job, PlanTable.of(plans), 0.25).tolist() == [0.25] * len(plans)


def test_a_stated_margin_holds_for_simulate_and_for_the_saved_plan(tmp_path: Path) -> None:
    scenario = load_scenario(LLAMA, {"search.memory_margin": "0.9"})
    prediction = api.simulate(scenario, timeline=False)
    assert (prediction.margin.share, prediction.margin.basis) == (0.9, STATED)
    assert prediction.fit is Fit.TIGHT
    assert api.simulate(load_scenario(LLAMA), timeline=False).fit is Fit.FITS
    saved = tmp_path / "saved.yaml"
    saved.write_text(scenario_text(scenario, scenario.fixed_plan()))
    assert load_scenario(saved).memory_margin == 0.9
    document = prediction.to_json()
    assert (document["memory_fit"], document["memory_margin"]) == ("tight", 0.9)
    assert document["usable_memory_bytes"] == prediction.fullest.usable
    assert "tight" in prediction.headline
