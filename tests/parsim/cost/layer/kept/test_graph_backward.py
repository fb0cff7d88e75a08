"""What a graph's backward needs beyond what is kept, and what eager PyTorch keeps of a max-pool."""

from __future__ import annotations

from dataclasses import replace

from parsim.cost.layer.composed import composed
from parsim.cost.layer.kept.graph_backward import backward_beyond
from parsim.cost.software import Software, software
from parsim.model.graph.build import build_graph
from parsim.model.graph.pointwise import Flatten
from parsim.model.graph.record import INPUT, Graph
from parsim.model.graph.sketch import Sketch
from parsim.model.graph.texts import CrossEntropy
from parsim.plan import Plan, PlanTable

CPU = software("executor-cpu")


def beyond(graph: Graph, stack: Software = CPU, samples: int = 2) -> float:
    table = PlanTable.of([Plan(microbatch_size=samples, precision="fp32")])
    return backward_beyond(graph, stack, lambda _: (table, samples)).size


def test_a_wide_product_has_its_gradient_twice_for_a_moment() -> None:
    """At fc1: its weight's gradient, its output's of 2 x 64 values; what fc2, relu kept is gone."""
    draw = Sketch("wide", (1024,))
    x = draw.relu(draw.dense(INPUT, "fc1", 64), "relu")
    draw.node(CrossEntropy(), "loss", draw.dense(x, "fc2", 2))
    gone = 2 * 64 + 2 * 2 * 2  # of relu and of the loss (fp32 logits and softmax are apart)
    least = 4.0 * (1024 * 64 + 64 + 2 * 64 - gone)
    assert least <= beyond(draw.graph()) <= least + 4.0 * gone


def test_a_first_backward_keeps_the_gradients_that_it_makes() -> None:
    """At the convolution, whose images are still kept, the wide product's gradient is made."""
    draw = Sketch("first", (3, 32, 32))
    x = draw.relu(draw.conv(INPUT, "conv", 16, 3, padding=1), "relu")
    draw.node(CrossEntropy(), "loss", draw.dense(draw.node(Flatten(), "flatten", x), "fc", 8))
    graph, table = draw.graph(), PlanTable.of([Plan(microbatch_size=2, precision="fp32")])
    first, later = (
        backward_beyond(graph, CPU, lambda _: (table, 2), first=first) for first in (True, False)
    )
    wide = 4.0 * (16 * 32 * 32 * 8 + 8)
    assert first.gradients >= wide
    assert later.gradients == 0.0
    assert later.size < first.size <= later.size + first.gradients


def test_a_convolution_has_it_once_more_where_the_library_reorders() -> None:
    draw = Sketch("deep", (64, 2, 2))
    x = draw.conv(draw.conv(INPUT, "conv1", 256, 3, padding=1), "conv2", 256, 3, padding=1)
    draw.node(CrossEntropy(), "loss", draw.dense(draw.node(Flatten(), "flatten", x), "fc", 2))
    graph, weights = draw.graph(), 4.0 * 256 * 256 * 9
    plain = replace(CPU, reorders_convolutions=False)
    assert beyond(graph) - beyond(graph, plain) >= 0.99 * weights


def test_indices_of_a_max_pool_are_no_dropout_mask() -> None:
    draw = Sketch("pool", (8, 4, 4))
    draw.max_pool(draw.relu(INPUT, "relu"), "pool", 2, 2)
    table = PlanTable.of([Plan(microbatch_size=2, precision="fp32")])
    assert all(not composed(layer, table, CPU).any() for layer in build_graph(draw.graph()).layers)
