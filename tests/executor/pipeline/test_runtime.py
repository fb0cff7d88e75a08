"""The runtime's list of actions and its check of outputs; no processes needed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.distributed.pipelining import ScheduleInterleaved1F1B

from executor.pipeline.outbox import Outbox
from executor.pipeline.runnable import as_run
from executor.pipeline.runtime import Runtime, check_output
from executor.pipeline.tensor_spec import TensorSpec
from executor.torch_internals import pipelining
from parsim.errors import PlanError
from parsim.schedule import build_schedule

EDGE = TensorSpec((2, 4, 16), torch.float32)


def test_promised_output_is_accepted() -> None:
    check_output(0, torch.zeros(2, 4, 16), EDGE)


@pytest.mark.parametrize(
    ("output", "wording"),
    [
        (torch.zeros(2, 4, 8), r"stage 3 returns \(2, 4, 8\) torch.float32, but edge 4 promises"),
        (
            torch.zeros(2, 4, 16, dtype=torch.bfloat16),
            r"torch.bfloat16, but edge 4 .*torch.float32",
        ),
        ((torch.zeros(2, 4, 16),), "stage 3 returns tuple; allowed: one tensor"),
    ],
)
def test_other_output_is_refused(output: object, wording: str) -> None:
    with pytest.raises(PlanError, match=wording):
        check_output(3, output, EDGE)


def test_examples_have_no_storage_and_only_numbers_take_gradients() -> None:
    example = EDGE.example(requires_grad=True)
    assert (example.device.type, tuple(example.shape)) == ("meta", EDGE.shape)
    assert example.requires_grad
    assert not TensorSpec((2,), torch.int64).example(requires_grad=True).requires_grad


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize(("microbatches", "chunks"), [(4, 2), (8, 2), (8, 3)])
def test_interleaved_is_torchs_own_list_without_what_sharding_needs(
    rank: int, microbatches: int, chunks: int
) -> None:
    schedule = build_schedule("interleaved_1f1b", pp=2, num_microbatches=microbatches, v=chunks)
    ours = Runtime(schedule, _stages(rank, chunks), (), _loss, Outbox())
    rows = as_run(schedule, "none").ranks
    ours._prepare_schedule_with_comms(
        {number: pipelining.to_torch(row) for number, row in enumerate(rows)},
        format="compute_comms",
    )
    theirs = ScheduleInterleaved1F1B(_stages(rank, chunks), microbatches, loss_fn=_loss)
    sharding = ("UNSHARD", "RESHARD", "REDUCE_GRAD")
    expected = [
        text
        for text in map(str, theirs.pipeline_order_with_comms[rank])
        if not text.endswith(sharding)
    ]
    assert [str(action) for action in ours.pipeline_order_with_comms[rank]] == expected
    assert sum("RECV" in text for text in expected) >= microbatches


def _loss(output: torch.Tensor, _target: torch.Tensor) -> torch.Tensor:
    return output


def _stages(rank: int, chunks: int) -> list[Any]:
    """Make stages that only know their place."""
    return [
        SimpleNamespace(
            stage_index=rank + 2 * chunk,
            num_stages=2 * chunks,
            group_size=2,
            group_rank=rank,
            is_first=rank + chunk == 0,
            is_last=rank + 2 * chunk == 2 * chunks - 1,
            has_backward=True,
        )
        for chunk in range(chunks)
    ]
