"""What replicas and stages wait for each other where a calibration saw ranks differ."""

from __future__ import annotations

from dataclasses import replace

import pytest

from parsim.cluster.hardware import Cluster
from parsim.cluster.reader import load_catalog
from parsim.cost.job import Job
from parsim.cost.order_statistics import expected_maximum
from parsim.cost.software import software
from parsim.model.reader import model_spec
from parsim.model.transformer import build_transformer
from parsim.plan import Plan
from parsim.sim import simulate


def job(rank_spread: float) -> Job:
    system = replace(load_catalog().system("dgx-a100"), rank_spread=rank_spread)
    return Job(
        model=build_transformer(model_spec("gpt2")),
        cluster=Cluster(system=system, num_nodes=1),
        software=software("megatron-lm"),
    )


@pytest.mark.parametrize(
    ("plan", "teams"),
    [
        (Plan(dp_replicate=8, num_microbatches=2), 8),
        (Plan(dp_replicate=2, pp=2, tp=2, num_microbatches=4), 4),
        (Plan(tp=4, dp_replicate=2, num_microbatches=2), 2),
        (Plan(cp=4, dp_replicate=2, num_microbatches=2), 2),
    ],
)
def test_ranks_that_meet_at_the_end_wait_for_the_slowest(plan: Plan, teams: int) -> None:
    without, spread = (simulate(job(share), plan).step_time for share in (0.0, 0.05))
    waited = 0.05 * float(expected_maximum(teams))
    assert spread / without == pytest.approx(1.0 + waited, rel=1e-9)


@pytest.mark.parametrize("precision", ["fp16_amp", "fp32"])
def test_replicas_of_a_transformer_wait_alike_in_any_precision(precision: str) -> None:
    """0.017 under DistributedDataParallel, not the 0.119 of images in fp16."""
    ddp = replace(job(0.0), software=software("pytorch-ddp"))
    plan = Plan(dp_replicate=8, microbatch_size=4, num_microbatches=2, precision=precision)
    alike = replace(ddp.software, replica_spread={"default": 0.0})
    without, spread = (
        simulate(replace(ddp, software=stack), plan).step_time for stack in (alike, ddp.software)
    )
    waited = 0.017 * float(expected_maximum(8))
    assert spread / without == pytest.approx(1.0 + waited, rel=1e-9)
