"""Functions that backward computes again: gradients to the bit, once for a backward in two."""

from __future__ import annotations

import gc
import weakref

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor, nn  # noqa: E402

from executor.model.repeat import backward_in_two, repeat  # noqa: E402

WIDTH = 16


class Layer:
    """A layer that counts its forwards."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.norm, self.first = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 2 * WIDTH)
        self.dropout, self.second = nn.Dropout(0.3), nn.Linear(2 * WIDTH, WIDTH)
        self.forwards = 0

    @property
    def parameters(self) -> list[Tensor]:
        modules = (self.norm, self.first, self.second)
        return [parameter for module in modules for parameter in module.parameters()]

    def __call__(self, x: Tensor) -> Tensor:
        self.forwards += 1
        inner = nn.functional.gelu(self.first(self.norm(x)))
        return x + self.second(self.dropout(inner))


def inputs() -> Tensor:
    torch.manual_seed(1)
    return torch.randn(4, WIDTH, requires_grad=True)


def loss(layer: Layer, x: Tensor, *, again: bool) -> Tensor:
    torch.manual_seed(2)
    with backward_in_two(in_two=True):
        y = repeat(layer, x) if again else layer(x)
    return y.square().sum()


def test_many_backwards_repeat_once_with_the_same_gradients() -> None:
    layer, x = Layer(), inputs()
    wanted = torch.autograd.grad(loss(layer, x, again=False), [x, *layer.parameters])
    layer.forwards = 0
    again = loss(layer, x, again=True)
    (of_input,) = torch.autograd.grad(again, x, retain_graph=True)
    others = [torch.autograd.grad(again, each, retain_graph=True)[0] for each in layer.parameters]
    assert layer.forwards == 2
    for gradient, other in zip(wanted, (of_input, *others), strict=True):
        assert torch.equal(gradient, other)


def test_a_whole_backward_draws_the_same_dropout_under_autocast() -> None:
    layer, gradients = Layer(), []
    for again in (False, True):
        x = inputs()
        with torch.autocast("cpu", torch.bfloat16):
            value = loss(layer, x, again=again)
        gradients.append(torch.autograd.grad(value, [x, *layer.parameters]))
    assert all(torch.equal(*pair) for pair in zip(*gradients, strict=True))


def test_nothing_stays_when_the_graph_is_gone() -> None:
    """tanh saves its own output, which a careless hook would tie to its own graph."""
    made: list[weakref.ref[Tensor]] = []

    def function(x: Tensor) -> Tensor:
        y = x.tanh()
        made.append(weakref.ref(y))
        return y.tanh()

    x = inputs()
    with backward_in_two(in_two=True):
        value = repeat(function, x).sum()
    (gradient,) = torch.autograd.grad(value, x, retain_graph=True)
    y = x.detach().tanh()
    assert torch.allclose(gradient, (1.0 - y**2) * (1.0 - y.tanh() ** 2))
    del value
    gc.collect()
    assert [each() for each in made] == [None, None]


def test_without_a_backward_in_two_it_is_checkpointed() -> None:
    layer, x = Layer(), inputs()
    torch.manual_seed(2)
    repeat(layer, x).sum().backward()
    assert layer.forwards == 2
    assert x.grad is not None
