"""Operators of networks: a convolution, as three matrix products too, and a recurrent layer.

    direction         m                  n            k
    forward           N P Q              K / g        R S C / g
    data gradient     N H W / t          C / g        R S K / g / t
    weight gradient   K / g              R S C / g    N P Q

N images, C to K channels in g groups, a window of R x S, an output of P x Q from an input of H x W
with the two strides' product t (a strided data gradient is t products, one for each phase).

Source: Chetlur et al. 2014 (arXiv:1410.0759), which names the implicit products.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Pair = tuple[int, int]
"""Rows and columns."""
Direction = Literal["forward", "data", "weight"]
DIRECTIONS: tuple[Direction, ...] = ("forward", "data", "weight")
"""What a convolution is computed for: its output, its input's gradient, its weight's."""

THREE = 3
"""Rows and columns of the window that Winograd's transforms were made for."""
NARROW = 32
"""Channels of a group up to which it is no convolution by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Convolution:
    """Y = X * W + b over images, with W of shape (outputs, channels / groups, *window).

    `keeps_input` is False where another operator keeps the same tensor for backward, and
    `input_gradient` is False for the model's first operator: nobody asks for the image's gradient.
    """

    name: str
    channels: int
    outputs: int
    window: Pair
    stride: Pair
    image_in: Pair
    image_out: Pair
    groups: int = 1
    bias: bool = False
    keeps_input: bool = True
    input_gradient: bool = True

    tokens = 1
    split_parameters = 0

    @property
    def kind(self) -> str:
        """What its measured times depend on beside the sizes of its products.

        A window of 1x7 or 7x1 is an implicit product like one of 1x1: transforms of tiles, which
        carry a "window" of 3x3 and more above the peak, are for two dimensions. Groups of few
        channels are "other". A 1x1 that strides has a slow data gradient, most of whose values are
        zeros.
        """
        if max(self.stride) > 1:
            return "1x1-strided" if self.window == (1, 1) else "strided"
        if 1 in self.window:
            return "1x1"
        narrow = self.groups > 1 and min(self.channels, self.outputs) <= NARROW * self.groups
        return "other" if narrow or min(self.window) < THREE else "window"

    @property
    def weights(self) -> int:
        """Values of W."""
        rows, columns = self.window
        return self.outputs * (self.channels // self.groups) * rows * columns

    @property
    def repeated_parameters(self) -> int:
        """Weight and bias: tensor parallelism does not divide them."""
        return self.weights + self.outputs * self.bias

    @property
    def values_in(self) -> int:
        """Values of one sample's input."""
        return self.channels * self.image_in[0] * self.image_in[1]

    @property
    def values_out(self) -> int:
        """Values of one sample's output."""
        return self.outputs * self.image_out[0] * self.image_out[1]

    @property
    def phases(self) -> int:
        """Products that a data gradient falls into: the strides' product, at most the window's."""
        rows, columns = (min(t, r) for t, r in zip(self.stride, self.window, strict=True))
        return rows * columns

    def flops(self, batch: int) -> int:
        """Forward FLOPs of a batch: 2 N K P Q (C / g) R S."""
        return 2 * batch * self.image_out[0] * self.image_out[1] * self.weights


@dataclass(frozen=True, slots=True, kw_only=True)
class Recurrent:
    """One layer of an LSTM (4 gates) or GRU (3) over `tokens` steps, in one direction or in two.

    Of each direction: weights (gates x hidden, inputs) and (gates x hidden, hidden), with `bias`
    two of gates x hidden, as cuDNN and PyTorch have them. The inputs' product is taken of all steps
    at once; the states' product of one step after another.

    Source: Hochreiter and Schmidhuber 1997; `torch.nn.LSTM`.
    """

    name: str
    tokens: int
    inputs: int
    hidden: int
    gates: int = 4
    directions: int = 1
    bias: bool = True
    keeps_input: bool = True

    split_parameters = 0

    @property
    def repeated_parameters(self) -> int:
        """Weights and biases of all directions."""
        biases = 2 * self.bias
        return self.directions * self.gates * self.hidden * (self.inputs + self.hidden + biases)

    def flops(self, batch: int) -> int:
        """Forward FLOPs of a batch: 2 per weight and token."""
        weights = self.directions * self.gates * self.hidden * (self.inputs + self.hidden)
        return 2 * batch * self.tokens * weights
