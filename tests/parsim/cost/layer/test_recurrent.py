"""Recurrent layers: parameters and FLOPs by hand, and measured times."""

from __future__ import annotations

import pytest

from parsim.cluster.hardware import Cluster
from parsim.cluster.reader import load_catalog
from parsim.cost.job import Job
from parsim.cost.layer.layers import LayerCoster
from parsim.cost.software import software
from parsim.model.graph.build import build_graph
from parsim.model.graph.record import INPUT
from parsim.model.graph.sequences import Lstm
from parsim.model.graph.sketch import Sketch
from parsim.model.networks import Recurrent
from parsim.plan import Plan, PlanTable


def test_parameters_are_those_of_torch() -> None:
    first = Recurrent(name="lstm", tokens=5, inputs=2048, hidden=1024)
    assert first.repeated_parameters == 4 * 1024 * (2048 + 1024 + 2) == 50_364_416 // 4
    both = Recurrent(name="lstm", tokens=5, inputs=1024, hidden=1024, directions=2)
    assert both.repeated_parameters == 16_793_600
    assert first.flops(3) == 2 * 3 * 5 * 4 * 1024 * (2048 + 1024)


@pytest.mark.parametrize(("tokens", "images"), [(10, 16), (50, 64)])
def test_every_token_is_a_step(tokens: int, images: int) -> None:
    """A step costs 25 us and its product, forward; twice the tokens take twice the time."""

    def forward(count: int) -> float:
        draw = Sketch("rnn", (count, 1024))
        draw.node(Lstm(hidden_size=1024), "lstm", INPUT)
        system = load_catalog().system("dgx-1v")
        job = Job(
            model=build_graph(draw.graph()),
            cluster=Cluster(system=system, num_nodes=1),
            software=software("pytorch-ddp"),
        )
        table = PlanTable.of([Plan(dp_replicate=8, microbatch_size=images, precision="fp16_amp")])
        return float(LayerCoster(job, table).cost(job.model.layers[0]).forward.seconds[0])

    assert forward(tokens) > 25e-6 * tokens
    assert forward(2 * tokens) == pytest.approx(2 * forward(tokens), rel=0.1)
