"""What stages of torch.distributed.pipelining hold beside activations, by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from parsim.cluster.hardware import Cluster
from parsim.cluster.reader import load_catalog
from parsim.cost.job import Job
from parsim.cost.software import software
from parsim.model.reader import model_spec
from parsim.model.transformer import build_transformer, with_options
from parsim.plan import Plan, PlanTable
from parsim.schedule import schedule_of
from parsim.sim import simulate
from parsim.sim.memory.stage_buffers import stage_buffers

H, T, V = 8192, 4096, 128_256
"""Width, tokens of a sequence, words of Llama 3 70B's."""

SENT, LOGITS = 2 * T * H, 2 * T * V
"""Bytes of a message of one sequence, and of its logits."""


def job(stack: str = "torchtitan") -> Job:
    spec = with_options(model_spec("llama3-70b"), num_layers=8, seq_len=T)
    return Job(
        model=build_transformer(spec),
        cluster=Cluster(system=load_catalog().system("dgx-h100"), num_nodes=1),
        software=software(stack),
    )


def plan(num_microbatches: int = 6) -> Plan:
    return Plan(pp=4, dp_shard=2, zero_stage=1, num_microbatches=num_microbatches)


def bytes_on_ranks(num_microbatches: int = 6) -> list[float]:
    """What ranks of 1F1B hold, which have 4, 3, 2 and 1 micro-batches in flight."""
    in_flight = np.array([[4.0], [3.0], [2.0], [1.0]])
    table = PlanTable.of([plan(num_microbatches)])
    schedule = schedule_of(plan(num_microbatches))
    return [float(x) for x in stage_buffers(job(), table, in_flight, schedule)[:, 0]]


def test_four_stages_by_hand() -> None:
    # received ahead or freed, gradients' buffers, outputs in flight
    first = (6 + 4) * SENT
    middle = [(6 - n) * SENT + (6 + n) * SENT for n in (3, 2)]
    last = (6 - 1) * SENT + (6 - 1) * LOGITS
    assert bytes_on_ranks() == pytest.approx([first, *middle, last], rel=1e-12)


def test_more_microbatches_take_more_bytes() -> None:
    fewer, more = bytes_on_ranks(6), bytes_on_ranks(8)
    assert more[0] - fewer[0] == pytest.approx(2 * SENT)
    assert more[3] - fewer[3] == pytest.approx(2 * (SENT + LOGITS))


def test_other_stacks_hold_no_message_longer_than_it_is_used() -> None:
    other = replace(job(), software=replace(software("torchtitan"), torch_stages=False))
    table, schedule = PlanTable.of([plan()]), schedule_of(plan())
    assert not stage_buffers(other, table, np.ones((4, 1)), schedule).any()
    apart = simulate(job(), plan()).peak_allocated
    assert min(np.subtract(apart, simulate(other, plan()).peak_allocated)) > 0.0
    assert not job("megatron-bridge").software.torch_stages
