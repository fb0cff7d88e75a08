"""Updates of ranks that share a memory, and the clipping that every worker does before its own."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from parsim.cluster.hardware import Cluster, Measured, System
from parsim.cluster.reader import load_catalog
from parsim.cost.data.update import CLIP, NORM, clipping_time, updates_at_once
from parsim.cost.job import Job
from parsim.cost.kernel.kernels import memory_time
from parsim.cost.software import software
from parsim.model.reader import model_spec
from parsim.model.transformer import build_transformer
from parsim.plan import Plan
from parsim.plan.strategies import LocalSGD, SingleProcess, Strategy
from parsim.sim import simulate

CONTENTION = 0.6


def _job(contention: float, *, clip: float = 1.0) -> Job:
    system = replace(load_catalog().system("cpu"), memory_contention=contention)
    return Job(
        model=build_transformer(model_spec("gpt2")),
        cluster=Cluster(system=system, num_nodes=1),
        software=software("executor-cpu"),
        clip=clip,
    )


def _optimizer(job: Job, dp: int, strategy: Strategy | None = None) -> float:
    plan = Plan(dp_replicate=dp, precision="fp32")
    plan = plan if strategy is None else replace(plan, strategy=strategy)
    return float(simulate(job, plan).breakdown["optimizer"])


def test_one_rank_alone_loses_nothing_and_all_of_a_node_the_share() -> None:
    system: System = replace(
        load_catalog().system("dgx-a100"), devices_per_node=5, memory_contention=CONTENTION
    )
    ranks = np.array([1, 3, 5, 10])
    expected = [1.0, 1.0 + CONTENTION / 2, 1.0 + CONTENTION, 1.0 + CONTENTION]
    assert updates_at_once(system, ranks) == pytest.approx(expected)


def test_ranks_at_once_are_slowed_down_where_they_write_and_not_where_they_read() -> None:
    """Norm and clipping apart, measured together at 1.03 to 1.10 and 1.49 to 1.65 of one alone."""
    for clip, slower in ((0.0, 1.0), (1.0, (4.0 + 8.0 * 1.6) / (4.0 + 8.0))):
        job = _job(CONTENTION, clip=clip)
        alone, beside = (clipping_time(job, job.system, 1e9, "fp32", x) for x in (1.0, 1.6))
        assert float(beside / alone) == pytest.approx(slower, rel=1e-4)


def _clipping(
    residuals: Measured, *, compute: str = "fp32", clip: float = 1.0, slowdown: float = 1.0
) -> float:
    job = _job(0.0, clip=clip)
    system = replace(job.system, device=replace(job.device, residuals=residuals))
    return float(clipping_time(job, system, 1e8, compute, slowdown))


@pytest.mark.parametrize("compute", ["fp32", "fp16"])
@pytest.mark.parametrize("clip", [0.0, 1.0])
def test_passes_that_were_not_measured_move_at_the_memory_rate(compute: str, clip: float) -> None:
    job = _job(0.0)
    moved = 4.0 + 8.0 * (clip > 0.0) + 8.0 * (compute == "fp16")
    seconds = float(memory_time(job.device, moved * 1e8))
    assert _clipping({}, compute=compute, clip=clip) == pytest.approx(seconds, rel=1e-14)


def test_norm_and_clipping_take_what_was_measured_of_each() -> None:
    norm, both = _clipping({}, clip=0.0), _clipping({})
    measured = {NORM: ((4e8, 0.5),), CLIP: ((8e8, 0.25),)}
    expected = 0.5 * norm + 0.25 * (both - norm)
    assert _clipping(measured) == pytest.approx(expected, rel=1e-6)
    slowed = 0.5 * norm + 0.25 * 1.6 * (both - norm)
    assert _clipping(measured, slowdown=1.6) == pytest.approx(slowed, rel=1e-6)


def test_a_step_takes_the_measured_passes() -> None:
    job = _job(0.0)
    passes: Measured = {NORM: ((5e8, 0.5),), CLIP: ((1e9, 0.5),)}
    system = replace(job.system, device=replace(job.device, residuals=passes))
    timed = replace(job, cluster=Cluster(system=system, num_nodes=1))
    plan = Plan(dp_replicate=2, precision="fp32")
    usual, half = (simulate(each, plan).breakdown["gradient_norm"] for each in (job, timed))
    before, after = (
        float(clipping_time(job, each, job.model.parameters, "fp32"))
        for each in (job.system, system)
    )
    assert usual - half == pytest.approx(before - after, rel=1e-6)  # the scalar's sum stays
    assert half / usual == pytest.approx(0.5, rel=0.05)


def test_replicas_that_share_a_memory_update_longer() -> None:
    fixed = _job(0.0).software.optimizer_fixed
    apart, beside = (_optimizer(_job(share), 2) - fixed for share in (0.0, CONTENTION))
    assert beside / apart == pytest.approx(1.0 + CONTENTION, rel=1e-6)


def test_device_0_of_a_single_process_updates_alone() -> None:
    apart, beside = (_optimizer(_job(x), 2, SingleProcess()) for x in (0.0, CONTENTION))
    assert beside == pytest.approx(apart, rel=0.01)


def test_local_steps_clip_their_own_gradients() -> None:
    local = LocalSGD(every=2)
    clipped, free = (_optimizer(_job(0.0, clip=clip), 2, local) for clip in (1.0, 0.0))
    update = _optimizer(_job(0.0), 2)
    stack = _job(0.0).software
    share = (stack.norm_bytes + stack.clip_bytes) / stack.optimizer_bytes
    assert clipped / update == pytest.approx(1.0 + share, rel=0.02)
    assert free / update == pytest.approx(1.0 + stack.norm_bytes / stack.optimizer_bytes, rel=0.02)


def test_a_worker_alone_is_not_slowed_down_by_others() -> None:
    """What a step is compared with to tell its speed-up does not hang on the contention."""
    plan = Plan(dp_replicate=2, precision="fp32", strategy=LocalSGD(every=2))
    apart, beside = (simulate(_job(share), plan) for share in (0.0, CONTENTION))
    assert apart.strategy is not None
    assert beside.strategy is not None
    assert beside.step_time > apart.step_time
    alone = [x.strategy.speed_up * x.step_time for x in (apart, beside) if x.strategy]
    assert alone[1] == pytest.approx(alone[0], rel=0.01)
