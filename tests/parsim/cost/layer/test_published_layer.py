"""One layer of a 22B GPT as its authors timed it on eight A100s (arXiv:2205.05198, table 4)."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import NamedTuple

import pytest

from parsim.cluster.hardware import Cluster
from parsim.cluster.reader import load_catalog
from parsim.cost.job import Job
from parsim.cost.layer.layers import LayerCoster
from parsim.cost.software import software
from parsim.model.reader import model_spec
from parsim.model.transformer import build_transformer
from parsim.plan import Plan, PlanTable, Recompute


class Measured(NamedTuple):
    """Milliseconds of a layer; backward has what is recomputed among it."""

    sequence_parallel: bool
    recompute: Recompute
    forward: float
    backward: float


TABLE = {
    "baseline": Measured(False, Recompute.NONE, 7.7, 11.9),
    "sequence parallelism": Measured(True, Recompute.NONE, 7.2, 11.8),
    "all recomputed": Measured(False, Recompute.FULL, 7.7, 19.5),
    "selective": Measured(False, Recompute.SELECTIVE, 7.7, 13.2),
    "selective, sequence parallelism": Measured(True, Recompute.SELECTIVE, 7.2, 13.1),
}


@cache
def job() -> Job:
    spec = replace(model_spec("megatron-22b"), fused_attention=False, dropout=True)
    cluster = Cluster(system=load_catalog().system("dgx-a100"), num_nodes=1)
    return Job(model=build_transformer(spec), cluster=cluster, software=software("megatron-2022"))


@pytest.mark.parametrize("name", TABLE)
def test_a_layer_takes_what_was_measured(name: str) -> None:
    measured = TABLE[name]
    plan = Plan(
        tp=8,
        microbatch_size=4,
        precision="fp16",
        gradient_precision="same",
        sequence_parallel=measured.sequence_parallel,
        recompute=measured.recompute,
    )
    table = PlanTable.of([plan])
    cost = LayerCoster(job(), table).cost(job().model.kinds[0])
    again = cost.recomputed(table, half_products=False)
    assert 1e3 * float(cost.forward.seconds[0]) == pytest.approx(measured.forward, rel=0.06)
    backward = float(cost.backward.seconds[0] + again.seconds[0])
    assert 1e3 * backward == pytest.approx(measured.backward, rel=0.06)
