"""Updates of ranks that share a memory, and the clipping that every worker does before its own."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from parsim.cluster.hardware import Cluster, System
from parsim.cluster.reader import load_catalog
from parsim.cost.data.update import updates_at_once
from parsim.cost.job import Job
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
