"""Buckets of gradients that are summands: their order, what closes them, what shares them."""

from __future__ import annotations

from parsim.layout.candidates import Options
from parsim.layout.laid import Laid, buckets
from parsim.layout.mesh import Mesh
from parsim.layout.names import options_of
from tests.parsim.sim.layouts.models import convolutions


def laid(mesh: Mesh, names: dict[str, str]) -> Laid:
    graph = convolutions()
    ways = options_of(Options(graph, mesh), names, None)
    return Laid(
        graph=graph, mesh=mesh, signatures={n: way[0] for n, way in ways.items()}, changes={}
    )


def test_full_buckets_close_in_the_order_of_backward() -> None:
    """fc5 16 x 12 + 12, fc4 24 x 16 + 16, fc3 128 x 24 + 24, norm2 16, conv2 576, conv1 224."""
    order = list(buckets(laid(Mesh((("a", 2),)), {"batch": "a"}), 500, beside=True))
    assert [(bucket.behind, bucket.values) for bucket in order] == [
        ("fc4", 204 + 400),
        ("fc3", 3096),
        ("conv2", 16 + 576),
        (None, 224),
    ]
    assert order[0].entries == (
        ("fc5", "weight"), ("fc5", "bias"), ("fc4", "weight"), ("fc4", "bias"),
    )  # fmt: skip
    assert {bucket.axes for bucket in order} == {(0,)}


def test_behind_the_backward_all_of_some_axes_are_one() -> None:
    """On two axes: what channels split is summed over rows alone, the rest over both."""
    mesh = Mesh((("rows", 2), ("cols", 2)))
    order = list(buckets(laid(mesh, {"batch": "rows", "ffn": "cols"}), 500, beside=False))
    assert all(bucket.behind is None for bucket in order)
    assert len({bucket.axes for bucket in order}) == len(order)
    assert {bucket.axes for bucket in order} == {(0,), (0, 1)}
