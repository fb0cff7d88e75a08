"""Operations on images: convolution, normalisation, activation, pooling, joins.

Traffic of a pass is in values moved for each value of its input or output: what its kernels must
read and write in eager PyTorch, whose kernels are one for each operation.

Source: `torch.nn`; passes counted in published profiles (fp32 batch normalisation on A100 and V100
reaches 0.7 to 0.8 of the memory's bandwidth by them).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import ClassVar

from parsim.errors import ModelError
from parsim.model.convolution import Convolution, Pair
from parsim.model.graph.operation import (
    Kept,
    Operation,
    Setting,
    Shape,
    image_of,
    moving,
    through,
)
from parsim.model.operators import Operator

INDEX = 8
"""Bytes of an index of max pooling (int64)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conv2d(Operation):
    """A convolution of an image; transposed, it spreads instead of gathers."""

    out_channels: int
    kernel_size: Pair
    stride: Pair = (1, 1)
    padding: Pair = (0, 0)
    groups: int = 1
    bias: bool = False

    keeps: ClassVar[tuple[Kept, ...]] = ("input",)

    def shape(self, inputs: tuple[Shape, ...]) -> Shape:
        """Channels from the operation, rows and columns by window, stride and padding."""
        channels, *image = image_of(inputs[0], "conv2d")
        if channels % self.groups or self.out_channels % self.groups:
            raise ModelError(
                f"groups={self.groups} of a convolution must divide its {channels} input and "
                f"{self.out_channels} output channels"
            )
        return self.out_channels, *_slid(image, self.kernel_size, self.stride, self.padding)

    def operators(self, at: Setting) -> tuple[Operator, ...]:
        """The convolution itself."""
        channels, *image = at.inputs[0]
        _, *result = at.output
        return (
            Convolution(
                name="conv",
                channels=channels,
                outputs=self.out_channels,
                window=self.kernel_size,
                stride=self.stride,
                image_in=(image[0], image[1]),
                image_out=(result[0], result[1]),
                groups=self.groups,
                bias=self.bias,
                keeps_input=at.kept > 0,
                input_gradient=at.asks,
            ),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchNorm2d(Operation):
    """Normalisation over the batch: reads twice and writes; backward reads 4 and writes 1.

    Forward the statistics and the result, backward two sums and the result. Keeps its input.
    """

    affine: bool = True

    keeps: ClassVar[tuple[Kept, ...]] = ("input",)

    def operators(self, at: Setting) -> tuple[Operator, ...]:
        """3 values forward, 5 backward, for each value."""
        channels, *_ = image_of(at.output, "batch_norm")
        return (
            moving(
                "batchnorm",
                at.size_out,
                3,
                5,
                kept=at.kept,
                parameters=2 * channels * self.affine,
                statistics=channels,
            ),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceNorm2d(BatchNorm2d):
    """Normalisation of each image and channel by itself: nothing that replicas could share."""

    affine: bool = False

    def operators(self, at: Setting) -> tuple[Operator, ...]:
        """3 values forward and 5 backward for each value, as in a batch's."""
        channels, *_ = image_of(at.output, "instance_norm")
        parameters = 2 * channels * self.affine
        return (moving("instancenorm", at.size_out, 3, 5, kept=at.kept, parameters=parameters),)


@dataclass(frozen=True, slots=True, kw_only=True)
class Relu(Operation):
    """max(x, 0), or with a `slope` below 0: reads and writes; backward reads 2, writes 1.

    In place it overwrites its input, and keeps its output either way (LeakyReLU out of place its
    input, which is as large).
    """

    in_place: bool = True
    slope: float = 0.0

    keeps: ClassVar[tuple[Kept, ...]] = ("output",)

    def operators(self, at: Setting) -> tuple[Operator, ...]:
        """2 values forward, 3 backward."""
        return (moving("relu", at.size_out, 2, 3, kept=at.kept),)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sigmoid(Relu):
    """1 / (1 + exp(-x)); keeps its output."""

    in_place: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MaxPool2d(Operation):
    """The largest value of each window, whose place is kept as an int64 beside the input."""

    kernel_size: Pair
    stride: Pair
    padding: Pair = (0, 0)
    ceil_mode: bool = False

    keeps: ClassVar[tuple[Kept, ...]] = ("input",)

    def shape(self, inputs: tuple[Shape, ...]) -> Shape:
        """The image by window, stride and padding."""
        channels, *image = image_of(inputs[0], "max_pool2d")
        window = self.kernel_size, self.stride, self.padding
        return channels, *_slid(image, *window, ceil=self.ceil_mode)

    def operators(self, at: Setting) -> tuple[Operator, ...]:
        """Reads the input, writes output and indices; backward the same the other way round."""
        share = at.size_out / at.size_in
        moved = 1.0 + share
        return (moving("maxpool", at.size_in, moved, moved, kept=at.kept, mask=INDEX * share),)


@dataclass(frozen=True, slots=True, kw_only=True)
class AvgPool2d(MaxPool2d):
    """The mean of each window; eager PyTorch keeps its input all the same."""

    def operators(self, at: Setting) -> tuple[Operator, ...]:
        """In and out."""
        return (through("avgpool", at),)


@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptiveAvgPool2d(Operation):
    """The mean of each of so many equal windows; of all the image it keeps nothing."""

    output_size: Pair = (1, 1)

    @property
    def kept(self) -> tuple[Kept, ...]:
        """The input, but for the mean of all, which PyTorch takes as a plain sum."""
        return () if self.output_size == (1, 1) else ("input",)

    def shape(self, inputs: tuple[Shape, ...]) -> Shape:
        """Channels as they are, rows and columns of the operation."""
        channels, *_ = image_of(inputs[0], "adaptive_avg_pool2d")
        return channels, *self.output_size

    def operators(self, at: Setting) -> tuple[Operator, ...]:
        """In and out."""
        return (through("avgpool", at),)


@dataclass(frozen=True, slots=True, kw_only=True)
class Add(Operation):
    """Elementwise sum: reads both, writes one; its gradient is the output's, handed on."""

    arity: ClassVar[int | None] = None

    def shape(self, inputs: tuple[Shape, ...]) -> Shape:
        """That of all inputs."""
        if len(set(inputs)) != 1:
            raise ModelError(f"tensors of one shape can be added, got {_listed(inputs)}")
        return inputs[0]

    def operators(self, at: Setting) -> tuple[Operator, ...]:
        """One more read than inputs."""
        return (
            moving("add", at.size_out, len(at.inputs) + 1, 0, launches=(len(at.inputs) - 1, 0)),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale(Operation):
    """An image times one factor for each channel, as squeeze-and-excitation has it; keeps both."""

    arity: ClassVar[int | None] = 2
    keeps: ClassVar[tuple[Kept, ...]] = ("input",)

    def shape(self, inputs: tuple[Shape, ...]) -> Shape:
        """The image's."""
        channels, *_ = image_of(inputs[0], "scale")
        if inputs[1] != (channels, 1, 1):
            raise ModelError(f"scale needs ({channels}, 1, 1) factors, got {inputs[1]}")
        return inputs[0]

    def operators(self, at: Setting) -> tuple[Operator, ...]:
        """Reads, writes; backward reads x and dy, writes dx, and the factors' sum reads both."""
        return (moving("scale", at.size_out, 2, 6, kept=at.kept, launches=(1, 3)),)


@dataclass(frozen=True, slots=True, kw_only=True)
class Concat(Operation):
    """Tensors side by side along their channels, or along the last dimension of texts."""

    arity: ClassVar[int | None] = None

    def shape(self, inputs: tuple[Shape, ...]) -> Shape:
        """All channels together."""
        axis = _joined_axis(inputs[0])
        rest = {(*shape[:axis], *shape[axis + 1 :]) for shape in inputs}
        if len(rest) != 1 or len({len(shape) for shape in inputs}) != 1:
            raise ModelError(f"tensors differ in more than their channels: {_listed(inputs)}")
        total = sum(shape[axis] for shape in inputs)
        return (*inputs[0][:axis], total, *inputs[0][axis + 1 :])

    def operators(self, at: Setting) -> tuple[Operator, ...]:
        """In and out; backward its parts are views, which the next operation copies."""
        return (moving("concat", at.size_out, 2, 2),)


@dataclass(frozen=True, slots=True, kw_only=True)
class Flatten(Operation):
    """All values of a sample in one row; nothing moves."""

    view: ClassVar[bool] = True

    def shape(self, inputs: tuple[Shape, ...]) -> Shape:
        """One dimension."""
        return (prod(inputs[0]),)


@dataclass(frozen=True, slots=True, kw_only=True)
class Crop(Operation):
    """The image shifted by a row and a column; a view (factorised reduction has one)."""

    rows: int = 1
    columns: int = 1

    view: ClassVar[bool] = True

    def shape(self, inputs: tuple[Shape, ...]) -> Shape:
        """Less what is cut off."""
        channels, rows, columns = image_of(inputs[0], "crop")
        return channels, rows - self.rows, columns - self.columns


@dataclass(frozen=True, slots=True, kw_only=True)
class Upsample(Operation):
    """Bilinear interpolation to so many times the rows and columns."""

    factor: int = 2

    def shape(self, inputs: tuple[Shape, ...]) -> Shape:
        """Larger by the factor in either direction."""
        channels, rows, columns = image_of(inputs[0], "upsample")
        return channels, self.factor * rows, self.factor * columns

    def operators(self, at: Setting) -> tuple[Operator, ...]:
        """In and out."""
        return (through("upsample", at),)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pad(Operation):
    """Zeros around an image, as the other input of a join has rows and columns more."""

    rows: int
    columns: int

    def shape(self, inputs: tuple[Shape, ...]) -> Shape:
        """Larger by what is added."""
        channels, rows, columns = image_of(inputs[0], "pad")
        return channels, rows + self.rows, columns + self.columns

    def operators(self, at: Setting) -> tuple[Operator, ...]:
        """In and out."""
        return (through("pad", at),)


@dataclass(frozen=True, slots=True, kw_only=True)
class Dropout(Operation):
    """Some values, or with `channels` whole images of a channel, become zero; keeps a mask."""

    p: float = 0.5
    channels: bool = False

    def operators(self, at: Setting) -> tuple[Operator, ...]:
        """Reads and writes, and a byte of mask for each value, or for each channel."""
        mask = at.output[0] / at.size_out if self.channels else 1.0
        return (moving("dropout", at.size_out, 2, 2, mask=mask),)


def _slid(
    image: list[int], kernel: Pair, stride: Pair, padding: Pair, *, ceil: bool = False
) -> tuple[int, int]:
    """Rows and columns of what a sliding window makes."""
    sizes = []
    for size, window, step, around in zip(image, kernel, stride, padding, strict=True):
        room = size + 2 * around - window
        if room < 0:
            raise ModelError(f"a window of {window} does not fit {size} rows or columns")
        count = -(-room // step) if ceil else room // step
        if ceil and count * step >= size + around:
            count -= 1  # the last window must begin inside the image
        sizes.append(count + 1)
    return sizes[0], sizes[1]


def _joined_axis(shape: Shape) -> int:
    return len(shape) - 1 if len(shape) < 3 else 0


def _listed(shapes: tuple[Shape, ...]) -> str:
    return ", ".join("x".join(map(str, shape)) for shape in shapes)
