"""Sums of gradients under DeepSpeed's bf16 optimizer, counted by hand."""

from __future__ import annotations

import numpy as np
import pytest

from parsim.cluster.hardware import Cluster
from parsim.cluster.reader import load_catalog
from parsim.cost.data.buckets import added_bytes, copies_gradients, unshared_bytes
from parsim.cost.data.data_parallel import DataParallel
from parsim.cost.data.reduction import final_reduction
from parsim.cost.data.update import updated_bytes
from parsim.cost.job import Job
from parsim.cost.software import software
from parsim.cost.step.messages import gradient_messages
from parsim.model.reader import model_spec
from parsim.model.transformer import build_transformer
from parsim.plan import Plan, PlanTable

LLAMA = build_transformer(model_spec("llama3-8b"))
PARAMETERS = np.array([[8e9]])


def job_of(stack: str = "megatron-deepspeed-2022", **fields: object) -> Job:
    cluster = Cluster(system=load_catalog().system("dgx-a100"), num_nodes=2)
    return Job(model=LLAMA, cluster=cluster, software=software(stack), **fields)  # type: ignore[arg-type]


def table_of(stage: int = 1, precision: str = "bf16", sums: str = "fp32") -> PlanTable:
    plan = Plan(
        dp_shard=16,
        zero_stage=stage,
        precision=precision,
        gradient_precision=sums,
        reduce_precision="same",
    )
    return PlanTable.of([plan])


@pytest.mark.parametrize(
    ("stack", "precision", "sums", "moved"),
    [
        ("megatron-deepspeed-2022", "bf16", "fp32", 18.0),  # widened 2 + 4, added 4 + 4 + 4
        ("megatron-deepspeed-2022", "fp16", "fp32", 10.0),
        ("megatron-deepspeed-2022", "bf16", "same", 6.0),
        ("megatron-2021", "bf16", "fp32", 10.0),
    ],
)
def test_bytes_of_adding_a_gradient(stack: str, precision: str, sums: str, moved: float) -> None:
    job, table = job_of(stack), table_of(1, precision, sums)
    assert added_bytes(job, table) == moved
    assert copies_gradients(job, table) == (moved == 18.0)


def test_what_a_rank_keeps_for_others_is_normed_clipped_and_zeroed() -> None:
    table = table_of()
    assert unshared_bytes(job_of(), table) == 4.0 + 8.0 + 4.0
    assert unshared_bytes(job_of(clip=0.0), table) == 4.0 + 4.0
    assert unshared_bytes(job_of("megatron-2021"), table) == 0.0


def test_an_update_moves_them_beside_its_share_under_zero_1_alone() -> None:
    share = 60.0 * 8e9 / 16
    for stage, whole in ((1, 16.0 * 8e9 * 15 / 16), (2, 0.0)):
        moved = updated_bytes(DataParallel.of(job_of(), table_of(stage)), PARAMETERS)
        assert moved == pytest.approx(share + whole)


def test_zero_1_sums_them_whole_on_every_rank() -> None:
    """An all-reduce carries each byte there and back: twice a reduce-scatter on one ring."""
    job = job_of()
    copied, shared = (DataParallel.of(job, table_of(sums=sums)) for sums in ("fp32", "same"))
    assert [message.kind for message in gradient_messages(copied, PARAMETERS[0])] == ["all_reduce"]
    (scatter,) = gradient_messages(shared, PARAMETERS[0])
    assert scatter.kind == "reduce_scatter"
    whole, half = final_reduction(copied, PARAMETERS[0]), final_reduction(shared, PARAMETERS[0])
    assert 1.7 < whole / half < 2.3
    again = DataParallel.of(job, table_of(2))
    (scattered,) = gradient_messages(again, PARAMETERS[0])
    assert scattered.kind == "reduce_scatter"
