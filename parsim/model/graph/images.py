"""Operations on images: convolution, normalisation, pooling, and what changes rows and columns.

Traffic of a pass is in values moved for each value of its input or output: what its kernels must
read and write in eager PyTorch, whose kernels are one for each operation.

Source: `torch.nn`; passes counted in published profiles (fp32 batch normalisation on A100 and V100
reaches 0.7 to 0.8 of the memory's bandwidth by them).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from parsim.errors import ModelError
from parsim.model.graph.operation import (
    Kept,
    Operation,
    OperationContext,
    Shape,
    image_of,
    moving,
    through,
)
from parsim.model.networks import Convolution, Pair
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

    def operators(self, at: OperationContext) -> tuple[Operator, ...]:
        """The convolution itself, and a pass that adds its bias: backward the sum of gradients."""
        channels, *image = at.inputs[0]
        _, *result = at.output
        products = Convolution(
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
        )
        return (products, moving("bias", at.size_out, 2, 1)) if self.bias else (products,)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchNorm2d(Operation):
    """Normalisation over the batch: reads twice and writes; backward reads 4 and writes 1.

    Forward the statistics and the result, backward two sums and the result. Keeps its input.
    """

    affine: bool = True

    keeps: ClassVar[tuple[Kept, ...]] = ("input",)

    def operators(self, at: OperationContext) -> tuple[Operator, ...]:
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

    def operators(self, at: OperationContext) -> tuple[Operator, ...]:
        """3 values forward and 5 backward for each value, as in a batch's."""
        channels, *_ = image_of(at.output, "instance_norm")
        parameters = 2 * channels * self.affine
        return (moving("instancenorm", at.size_out, 3, 5, kept=at.kept, parameters=parameters),)


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalResponseNorm(Operation):
    """Each value over a power of the squares of `size` channels around it (Krizhevsky 2012, 3.3).

    Keeps its input and its output.
    """

    size: int = 5

    keeps: ClassVar[tuple[Kept, ...]] = ("input", "output")

    def operators(self, at: OperationContext) -> tuple[Operator, ...]:
        """One kernel each way: in and out; backward both of them and a gradient in, one out."""
        return (moving("lrn", at.size_out, 2, 4, kept=at.kept),)


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

    def operators(self, at: OperationContext) -> tuple[Operator, ...]:
        """Reads the input, writes output and indices; backward the same the other way round."""
        share = at.size_out / at.size_in
        moved = 1.0 + share
        return (moving("maxpool", at.size_in, moved, moved, kept=at.kept, mask=INDEX * share),)


@dataclass(frozen=True, slots=True, kw_only=True)
class AvgPool2d(MaxPool2d):
    """The mean of each window; eager PyTorch keeps its input all the same."""

    def operators(self, at: OperationContext) -> tuple[Operator, ...]:
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

    def operators(self, at: OperationContext) -> tuple[Operator, ...]:
        """In and out."""
        return (through("avgpool", at),)


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

    def operators(self, at: OperationContext) -> tuple[Operator, ...]:
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

    def operators(self, at: OperationContext) -> tuple[Operator, ...]:
        """In and out."""
        return (through("pad", at),)


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
