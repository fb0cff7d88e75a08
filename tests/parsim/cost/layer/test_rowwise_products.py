"""Rates of products with a scale a row, with and without tensor parallelism."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from parsim.cluster.hardware import Cluster
from parsim.cluster.reader import load_catalog
from parsim.cost.job import Job
from parsim.cost.kernel.quantized import product_time
from parsim.cost.layer.products import Products
from parsim.cost.software import software
from parsim.model.operators import Linear
from parsim.model.reader import model_spec
from parsim.model.transformer import build_transformer
from parsim.plan import Plan, PlanTable
from parsim.plan.precision import ROWWISE


def llama() -> Job:
    return Job(
        model=build_transformer(model_spec("llama3-8b")),
        cluster=Cluster(system=load_catalog().system("dgx-h100"), num_nodes=1),
        software=software("torchtitan"),
    )


@pytest.mark.parametrize(("tp", "rate"), [(1, 0.97), (2, 0.46), (8, 0.46)])
def test_ranks_that_divide_products_reach_less(tp: int, rate: float) -> None:
    job, table = llama(), PlanTable.of([Plan(tp=tp, dp_replicate=8 // tp, precision="fp8_rowwise")])
    fc1 = next(
        op for op in job.model.kinds[0].operators if isinstance(op, Linear) and op.name == "fc1"
    )
    kernels = next(iter(Products(job, table).of(fc1, ROWWISE)))
    assert isinstance(kernels, tuple)
    sides = tuple(np.array([float(side)]) for side in (8192, 2 * 14336 / tp, 4096))
    recipe = replace(ROWWISE, rate=rate, divided_rate=None)
    expected = product_time(job.device, table.precision, recipe, sides)  # type: ignore[arg-type]
    assert kernels[0].seconds == pytest.approx(expected)
