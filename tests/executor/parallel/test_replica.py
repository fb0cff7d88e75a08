"""What a replica does with the gradients of the last step."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch")

import torch

from executor.parallel.replica import DataKind, Replica
from parsim.plan import Plan


@pytest.mark.parametrize(
    ("kind", "count", "stands"),
    [("plain", 1, False), ("plain", 2, False), ("ddp", 1, False), ("ddp", 2, True)],
)
def test_gradients_stand_in_ddps_buckets_where_micro_batches_are_summed_there(
    kind: DataKind, count: int, stands: bool
) -> None:
    stage: Any = torch.nn.Linear(3, 2)
    for parameter in stage.parameters():
        parameter.grad = torch.ones_like(parameter)
    before = [parameter.grad for parameter in stage.parameters()]
    mesh: Any = None
    plan = Plan(num_microbatches=count)
    Replica(stage=stage, module=stage, kind=kind, plan=plan, mesh=mesh).zero_grad()
    after = [parameter.grad for parameter in stage.parameters()]
    if stands:
        assert all(new is old and not new.any() for new, old in zip(after, before, strict=True))
    else:
        assert after == [None, None]
