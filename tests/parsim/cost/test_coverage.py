"""How much unknown links weigh in a step."""

from __future__ import annotations

from dataclasses import replace

import pytest

from parsim.cluster.hardware import Cluster
from parsim.cluster.reader import load_catalog
from parsim.cost.collective.measured_curve import SPREAD
from parsim.cost.coverage import exchange_spread
from parsim.cost.job import Job
from parsim.cost.software import software
from parsim.model.reader import model_spec
from parsim.model.transformer import build_transformer
from parsim.plan import Plan


def job(nodes: int = 1) -> Job:
    model = build_transformer(model_spec("megatron-22b"))
    system = replace(load_catalog().system("dgx-a100"), curves=())
    return Job(
        model=model,
        cluster=Cluster(system=system, num_nodes=nodes),
        software=software("megatron-2022"),
    )


def test_one_rank_has_nothing_to_be_unsure_of() -> None:
    assert exchange_spread(job(), Plan(), within=0.5, after=0.5) == 0.0


def test_inside_a_node_by_hand() -> None:
    spread = exchange_spread(job(), Plan(tp=8), within=0.3, after=0.0)
    assert spread == pytest.approx(0.3 * SPREAD["node"][2])  # 2048 x 6144 x 2 B = 25 MB


def test_replicas_across_nodes_by_hand() -> None:
    spread = exchange_spread(job(4), Plan(tp=8, dp_replicate=4), within=0.0, after=0.2)
    assert spread == pytest.approx(0.2 * SPREAD["across"][3])


def test_inside_and_after_are_independent() -> None:
    plan = Plan(tp=8, dp_replicate=4)
    inside, other = (
        exchange_spread(job(4), plan, within=w, after=a) for w, a in ((0.3, 0), (0, 0.2))
    )
    both = exchange_spread(job(4), plan, within=0.3, after=0.2)
    assert both == pytest.approx((inside**2 + other**2) ** 0.5)


def test_calibrated_collectives_are_surer() -> None:
    before = exchange_spread(job(), Plan(tp=8), within=0.3, after=0.0)
    known = job()
    system = replace(known.system, residuals={"all_reduce": ((1e6, 8.0, 1.0), (1e8, 8.0, 1.0))})
    known = replace(known, cluster=replace(known.cluster, system=system))
    after = exchange_spread(known, Plan(tp=8), within=0.3, after=0.0)
    assert after == pytest.approx(0.3 * SPREAD["measured"][2])
    assert after < before


def test_shards_gather_inside_layers() -> None:
    plan = Plan(dp_shard=8, zero_stage=3)
    assert exchange_spread(job(), plan, within=0.3, after=0.0) > 0.0
