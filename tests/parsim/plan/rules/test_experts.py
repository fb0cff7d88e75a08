"""Rules of experts on ranks of their own."""

from __future__ import annotations

from dataclasses import replace

import pytest

from parsim.cluster.hardware import Cluster
from parsim.cluster.reader import load_catalog
from parsim.model.reader import model_spec
from parsim.model.transformer import build_transformer
from parsim.plan import Plan
from parsim.plan.rules.violation import violation

MIXTURE = build_transformer(model_spec("mixtral-8x7b"))
ROUTED = Plan(tp=2, dp_shard=8, ep=8, zero_stage=1, sequence_parallel=True)

BROKEN_EXPERTS: dict[str, tuple[dict[str, object], str]] = {
    "count": ({"ep": 3}, "ep=3 does not divide num_experts=8; allowed: 1, 2, 4, 8"),
    "width": (
        {"etp": 3},
        "etp=3 does not divide expert_ffn_hidden_size=14336; allowed: "
        "1, 2, 4, 7, 8, 14, 16, 28, 32, 56, 64",
    ),
    "tensor without sequence": (
        {"sequence_parallel": False},
        "tp=2 without sequence parallelism: each rank would route all tokens to the same experts; "
        "use sequence_parallel=true or tp=1",
    ),
    "ranks": (
        {"etp": 4},
        "ep=8 x etp=4 = 32 does not divide dp_shard=8 x cp=1 x tp=2 = 16; allowed: 1, 2, 4, 8, 16",
    ),
    "order": (
        {"pp": 2, "dp_shard": 4, "rank_order": ("dp_replicate", "dp_shard", "pp", "cp", "tp")},
        "rank_order=dp_replicate-dp_shard-pp-cp-tp: ep=8 x etp=1 needs a stage's ranks side by "
        "side; put pp first",
    ),
}


def test_experts_over_all_ranks_of_a_stage_are_legal(cluster: Cluster) -> None:
    assert violation(ROUTED, MIXTURE, cluster) is None
    assert violation(replace(ROUTED, etp=2), MIXTURE, cluster) is None


@pytest.mark.parametrize("case", BROKEN_EXPERTS)
def test_messages_of_experts(cluster: Cluster, case: str) -> None:
    changes, message = BROKEN_EXPERTS[case]
    plan = replace(ROUTED, **changes)  # type: ignore[arg-type]
    assert violation(plan, MIXTURE, cluster) == message


def test_replicas_that_share_experts_take_equally_many_passes() -> None:
    model = build_transformer(model_spec("mixtral-8x7b"))
    cluster = Cluster(system=load_catalog().system("dgx-h100"), num_nodes=1)
    plan = Plan(
        dp_shard=8, ep=8, zero_stage=1, num_microbatches=4, replica_microbatches=(4,) * 4 + (2,) * 4
    )
    assert "with ep=8 replicas send each other tokens" in (violation(plan, model, cluster) or "")
    assert violation(replace(plan, replica_microbatches=None), model, cluster) is None
