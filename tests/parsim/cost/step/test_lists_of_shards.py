"""Matrices that DeepSpeed's ZeRO-3 gathers twice in a backward, and what lists of tensors cost."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from parsim.cluster.hardware import Cluster
from parsim.cluster.reader import load_catalog
from parsim.cost.data.data_parallel import DataParallel
from parsim.cost.job import Job
from parsim.cost.software import software
from parsim.cost.step.costs import StepCosts
from parsim.cost.step.stages import gathered_again
from parsim.cost.step.step import step_costs
from parsim.model.reader import model_spec
from parsim.model.transformer import build_transformer, with_options
from parsim.plan import Plan, PlanTable, Recompute


def job(width: int = 12288, stack: str = "deepspeed-zero3", nodes: int = 4) -> Job:
    spec = with_options(
        model_spec("gpt3-175b"), hidden_size=width, ffn_hidden_size=4 * width,
        num_attention_heads=width // 128, num_key_value_heads=width // 128,
    )  # fmt: skip
    return Job(
        model=build_transformer(spec),
        cluster=Cluster(system=load_catalog().system("dgx-a100"), num_nodes=nodes),
        software=software(stack),
    )


def plan(nodes: int = 4, **fields: object) -> Plan:
    usual = {"zero_stage": 3, "recompute": Recompute.FULL}
    return Plan(dp_shard=8 * nodes, **{**usual, **fields})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("width", "twelfths"),
    [
        (4096, 0),  # 0.2e9 parameters: 18/12 of them are fewer than 1e9
        (8192, 4),  # 0.8e9: 16/12 and 18/12 are more, proj and qkv
        (12288, 8),  # 1.8e9: 8/12 too, up
        (20480, 8),  # 5.0e9: down is needed at once
    ],
)
def test_matrices_are_let_go_where_much_is_used_between(width: int, twelfths: int) -> None:
    table, asked = PlanTable.of([plan()]), job(width)
    again = gathered_again(asked, table, asked.model.blocks[0])
    assert again[0] == twelfths * width**2


def test_without_recomputation_and_in_other_stacks_nothing_is_gathered_twice() -> None:
    kept, asked = PlanTable.of([plan(recompute=Recompute.NONE)]), job()
    assert gathered_again(asked, kept, asked.model.blocks[0])[0] == 0.0
    other = job(stack="mpt-fsdp-2023")
    assert gathered_again(other, PlanTable.of([plan()]), other.model.blocks[0])[0] == 0.0


def costs(asked: Job) -> StepCosts:
    return step_costs(asked, PlanTable.of([plan()]))


def test_a_backward_waits_for_what_is_gathered_twice() -> None:
    """In line: second gathers of two thirds of each layer come on top, forwards are the same."""
    asked = job(stack="deepspeed-zero3-2021")
    kept = replace(asked, software=replace(asked.software, reuse_distance=None))
    once, twice = costs(kept), costs(asked)
    assert twice.forward[0, 0] == once.forward[0, 0]
    gathers = once.exposed_forward[0, 0]
    assert twice.backward[0, 0] - once.backward[0, 0] == pytest.approx(2 / 3 * gathers, rel=0.01)


@pytest.mark.parametrize("nodes", [4, 64])
def test_lists_cost_a_launch_for_each_rank(nodes: int) -> None:
    """8 us for each of 32 or 512 ranks, and four bytes moved for one that is carried."""
    table = PlanTable.of([plan(nodes)])
    carried = job(nodes=nodes).model.blocks[0].parameters
    listed = DataParallel.of(job(stack="deepspeed-zero3-2021", nodes=nodes), table)
    flat = DataParallel.of(job(nodes=nodes), table)
    more = listed.gather(np.array([carried])) - flat.gather(np.array([carried]))
    device = listed.job.device
    moved = 4.0 * 2.0 * carried / (device.memory_bandwidth * device.memory_efficiency)
    assert more[0] == pytest.approx(8.0e-6 * 8 * nodes + moved, rel=1e-9)


def test_the_stack_of_2021_shows_all_of_its_collectives() -> None:
    old, new = costs(job(stack="deepspeed-zero3-2021")), costs(job())
    assert old.exposed_forward[0, 0] > 1.9 * new.exposed_forward[0, 0]
    assert old.backward[0, 0] > new.backward[0, 0]
