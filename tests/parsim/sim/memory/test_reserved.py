"""Allocated, reserved, context: three numbers, an interval, and a warning near the limit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parsim.cluster.hardware import Cluster
from parsim.cluster.reader import load_catalog
from parsim.cost.job import Job
from parsim.cost.software import software, software_catalog
from parsim.model.reader import model_spec
from parsim.model.transformer import build_transformer
from parsim.plan import Plan, Recompute
from parsim.sim import simulate
from parsim.sim.confidence.known_errors import Errors, MemoryGroup
from parsim.sim.confidence.memory_spread import ASSUMED, PARSIM_RUNS, Z80, memory_spread
from parsim.sim.memory.reserved import SEGMENT, reserved_bytes
from tests.parsim.sim.conftest import PLANS, gpt_job

SIZES = {"devices": 16.0, "hidden_size": 8192.0, "seq_len": 8192.0, "microbatch_tokens": 8192.0}
STACK = software("nemo")
GROUP = MemoryGroup(
    software="nemo",
    recompute="none",
    n=9,
    half=0.01,
    ranges={"devices": (8.0, 16.0), "hidden_size": (4096.0, 8192.0)},
)
ERRORS = Errors(
    groups={},
    factors={},
    unknown_software=0.0,
    reach=0.0,
    memory_reach=0.02,
    memory={("nemo", "none"): GROUP},
)

B200 = {
    66.55: 70.88,
    60.68: 62.53,
    39.07: 40.18,
    28.29: 29.12,
    45.63: 48.79,
    44.70: 47.05,
    104.30: 110.18,
    114.00: 118.61,
    87.08: 92.26,
    81.59: 84.70,
    52.89: 54.65,
    38.57: 39.83,
    68.43: 70.33,
    104.51: 111.94,
    87.03: 91.15,
    139.22: 152.14,
    112.67: 121.40,
    147.99: 159.65,
    118.13: 127.50,
}
"""Allocated and reserved GiB of all distinct B200 runs (SimuMax), mixtures of experts too."""


def test_the_share_is_the_mean_of_the_measured_ones() -> None:
    shares = [reserved / allocated - 1 for allocated, reserved in B200.items()]
    assert software("megatron-te-2025").reserved_share == pytest.approx(np.mean(shares), abs=5e-4)


def test_measured_reservations() -> None:
    """Mean error 2 %: the share is not the same for all runs."""
    allocated = np.array(list(B200)) * 2**30
    prediction = reserved_bytes(software("megatron-te-2025"), allocated) / 2**30
    errors = np.abs(prediction / np.array(list(B200.values())) - 1)
    assert errors.mean() <= 0.02
    assert errors.max() <= 0.04


@given(allocated=st.floats(min_value=1e6, max_value=1e12))
def test_reserved_is_whole_segments_and_never_less(allocated: float) -> None:
    prediction = float(reserved_bytes(software("generic"), np.array(allocated)))
    assert prediction % SEGMENT == 0.0
    assert allocated < prediction <= 1.053 * allocated + SEGMENT


def test_a_cpu_reserves_what_it_allocates() -> None:
    assert float(reserved_bytes(software("executor-cpu"), np.array(12345.0))) == 12345.0


def test_three_numbers_in_json(job: Job) -> None:
    prediction = simulate(job, PLANS["1f1b"]).to_json()
    pairs = zip(prediction["peak_allocated_bytes"], prediction["peak_reserved_bytes"], strict=True)
    assert all(allocated < reserved for allocated, reserved in pairs)
    assert prediction["context_bytes"] == job.context_memory
    low, high = prediction["peak_allocated_interval_bytes"]
    assert low < max(prediction["peak_allocated_bytes"]) < high
    assert sum(prediction["activations_by_layer_bytes"].values()) == pytest.approx(
        prediction["memory_bytes"]["activations"]
    )


@pytest.mark.parametrize(("share", "notes"), [(0.89, 0), (0.91, 1), (1.5, 1)])
def test_a_full_device_is_told(share: float, notes: int) -> None:
    job, plan = gpt_job(), PLANS["1f1b"]
    prediction = simulate(job, plan)
    fullest = prediction.fullest
    capacity = (fullest.peak_reserved + fullest.context) / share
    full = replace(prediction, fullest=replace(fullest, capacity=capacity))
    assert len(full.memory_notes) == notes
    assert [note for note in full.to_json()["notes"] if "above 90 %" in note] == list(
        full.memory_notes
    )


def test_less_evidence_is_a_wider_interval() -> None:
    for recompute in Recompute:
        kin, known, unknown = (ASSUMED[each][recompute] for each in ("kin", "known", "unknown"))
        measured = [sd for (_, mode), sd in PARSIM_RUNS.items() if mode is recompute]
        assert max(measured, default=0.0) <= kin < known <= unknown


def test_what_was_not_measured_is_never_surer_than_what_was() -> None:
    sizes = {**SIZES, "seq_len": 1e7, "microbatch_tokens": 1e7}
    for stack in software_catalog().values():
        for recompute in Recompute:
            spread = memory_spread(stack, recompute, sizes)
            assert spread.sd <= memory_spread(software("generic"), recompute, sizes).sd


@given(factor=st.floats(1.0, 1e3))
def test_peaks_of_sizes_farther_outside_are_never_surer(factor: float) -> None:
    for name, (least, most) in GROUP.ranges.items():
        for edge, away in ((most, factor), (least, 1.0 / factor)):
            near, far = (
                memory_spread(STACK, Recompute.NONE, {**SIZES, name: edge * x}, ERRORS)
                for x in (away, away**2)
            )
            assert near.sd <= far.sd
            assert near.sd >= memory_spread(STACK, Recompute.NONE, SIZES, ERRORS).sd


def test_the_distance_of_a_peak_by_hand() -> None:
    near = memory_spread(STACK, Recompute.NONE, SIZES, ERRORS)
    far = memory_spread(STACK, Recompute.NONE, {**SIZES, "devices": 16.0 * np.e}, ERRORS)
    assert near.sd == pytest.approx(0.01 / Z80)
    assert far.sd == pytest.approx(np.hypot(0.01, 0.02) / Z80)
    assert far.basis.endswith("devices a factor 2.7 outside of theirs")


def test_evidence_by_stack_and_mode() -> None:
    stack = software("megatron-te-2025")
    assert memory_spread(stack, Recompute.NONE, SIZES).evidence == "measured"
    assert memory_spread(stack, Recompute.FULL, SIZES).evidence == "kin"
    assert memory_spread(software("generic"), Recompute.NONE, SIZES).evidence == "unknown"
    assert {stack for stack, _ in PARSIM_RUNS} <= set(software_catalog())


@pytest.mark.parametrize(
    ("stack", "evidence"),
    [
        ("megatron-lm", "kin"),
        ("megatron-2022", "kin"),
        ("torchtitan", "kin"),
        ("kempnerforge", "known"),
        ("executor-cuda", "kin"),
        ("nanotron", "known"),
        ("deepspeed-huggingface", "known"),
        ("litgpt", "known"),
    ],
)
def test_peaks_say_something_of_stacks_of_their_memory_family_alone(
    stack: str, evidence: str
) -> None:
    """A stack that is described from its code alone must leave a fifth of the memory free."""
    spread = memory_spread(software(stack), Recompute.NONE, SIZES)
    assert spread.evidence == evidence
    assert (spread.margin > 0.2) == (evidence == "known")


def test_the_interval_is_80_percent_of_a_log_normal() -> None:
    spread = memory_spread(software("nemo"), Recompute.FULL, SIZES)
    low, high = spread.interval(50.0)
    assert low * high == pytest.approx(2500.0)
    assert np.log(high / low) == pytest.approx(2 * Z80 * spread.sd)


def test_an_unstated_stacks_peak_holds_what_other_stacks_do_with_the_same_plan() -> None:
    """1F1B of a stack that nobody described: the interval says what is assumed and covers the rest.

    Here: one with gradients in 16 bit, one with an unfused loss in fp32, one without fused kernels.
    """
    job = Job(
        model=build_transformer(model_spec("llama3-8b")),
        cluster=Cluster(system=load_catalog().system("dgx-h100"), num_nodes=1),
        software=software("generic"),
    )
    plan = Plan(pp=2, tp=4, num_microbatches=4, sequence_parallel=True)
    told = simulate(job, plan)
    low, high = told.peak_interval
    for words in (
        "4 bytes a gradient",
        "sharded as planned",
        "8 bytes a logit",
        "0.4 GB",
        "unfused",
    ):
        assert words in told.memory_basis
    narrow = simulate(job, replace(plan, gradient_precision="same"))
    wide = simulate(replace(job, software=replace(job.software, loss_kept=14.0)), plan)
    assert low < max(narrow.peak_allocated) < max(told.peak_allocated) < high
    assert max(wide.peak_allocated) < high
    kept = software("deepspeed-huggingface").eager_kept
    eager = simulate(replace(job, software=replace(job.software, eager_kept=kept)), plan)
    assert max(told.peak_allocated) < max(eager.peak_allocated) < high
    known = simulate(replace(job, software=software("nemo")), plan)
    assert "assumed:" not in known.memory_basis
