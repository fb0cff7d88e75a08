"""Convolutions: the three products, bounds by bytes, groups, and measured layers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from parsim.cluster.reader import load_catalog
from parsim.cost.kernel.convolutions import convolution_time, product_sides
from parsim.model.networks import Convolution, Direction

STRIDED = Convolution(
    name="conv",
    channels=128,
    outputs=128,
    window=(3, 3),
    stride=(2, 2),
    image_in=(56, 56),
    image_out=(28, 28),
)
"""ResNet-50's layer2.0.conv2."""

SAME = replace(STRIDED, stride=(1, 1), image_out=(56, 56))


def test_products_of_a_strided_layer() -> None:
    assert STRIDED.flops(256) == 59_190_018_048
    sides = {
        direction: tuple(float(side) for side in product_sides(STRIDED, direction, 256))
        for direction in ("forward", "data", "weight")
    }
    assert sides == {
        "forward": (200_704, 128, 1_152),
        "data": (802_816, 128, 288),
        "weight": (128, 1_152, 200_704),
    }
    # every direction has the same number of products
    assert {2 * m * n * k for m, n, k in sides.values()} == {59_190_018_048}


def test_groups_divide_flops_and_parameters() -> None:
    grouped = replace(SAME, groups=32)
    assert SAME.flops(8) == 32 * grouped.flops(8)
    assert SAME.weights == 32 * grouped.weights


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.parametrize("direction", ["forward", "data", "weight"])
@pytest.mark.parametrize("groups", [1, 32, 128])
def test_no_kernel_beats_its_bytes(precision: str, direction: str, groups: int) -> None:
    device = load_catalog().device("v100-sxm-16gb")
    op, value = replace(SAME, groups=groups), 4.0 if precision == "fp32" else 2.0
    seconds = float(convolution_time(device, precision, op, direction, 64, value))  # type: ignore[arg-type]
    moved = value * (64 * (op.values_in + op.values_out) + op.weights)
    assert seconds >= moved / device.memory_bandwidth


def test_more_images_are_never_faster() -> None:
    device = load_catalog().device("a100-sxm-80gb")
    images = np.arange(1, 200, dtype=np.float64)
    for direction in ("forward", "data", "weight"):
        seconds = convolution_time(device, "fp16", SAME, direction, images, 2.0)
        assert np.all(np.diff(seconds) >= -1e-12)


def test_slices_of_a_deep_weight_gradient() -> None:
    """One tile on a whole device: only slices of the depth fill it (RTX 3070: 10.3 and 0.50 ms)."""
    device = load_catalog().device("v100-sxm-16gb")
    op = replace(SAME, channels=64, outputs=64, window=(1, 1))
    weight = float(convolution_time(device, "fp16", op, "weight", 256, 2.0))
    forward = float(convolution_time(device, "fp16", op, "forward", 256, 2.0))
    assert weight < 4.0 * forward


def test_winograd_beats_the_peak_in_direct_flops() -> None:
    device = load_catalog().device("v100-sxm-16gb")
    seconds = float(convolution_time(device, "fp32", SAME, "forward", 256, 4.0))
    assert SAME.flops(256) / seconds > device.peak("fp32")


@pytest.mark.parametrize("direction", ["forward", "data", "weight"])
def test_a_window_of_one_row_is_a_plain_product(direction: Direction) -> None:
    """Winograd's transforms are for two dimensions: 1x7 takes 7 times 1x1, below the peak."""
    device = load_catalog().device("v100-sxm-16gb")
    small = replace(SAME, channels=192, outputs=192, image_in=(17, 17), image_out=(17, 17))
    point, row = (replace(small, window=(1, columns)) for columns in (1, 7))
    seconds = float(convolution_time(device, "fp32", row, direction, 256, 4.0))
    plain = float(convolution_time(device, "fp32", point, direction, 256, 4.0))
    assert row.flops(256) / seconds < device.peak("fp32")
    assert seconds == pytest.approx(7 * plain, rel=0.1)


def test_few_channels_slow_the_gradients_of_winograd() -> None:
    """Half of the full rate at 48 channels in the weight's gradient, as DeepBench measured on P100.

    16 images of 56x56, 64 to 64 channels: 0.54 of the peak against 1.45 with 128 channels of 28x28.
    """
    device = load_catalog().device("p100-pcie-16gb")
    few = replace(SAME, channels=64, outputs=64)
    many = replace(SAME, image_in=(28, 28), image_out=(28, 28))
    few_rate, many_rate = (
        op.flops(16) / float(convolution_time(device, "fp32", op, "weight", 16, 4.0)) / 9.3e12
        for op in (few, many)
    )
    assert few_rate < 2.0 * 0.54
    assert many_rate == pytest.approx(1.45, rel=0.2)


LARGE = [
    # images, channels, rows, outputs, milliseconds of each direction
    (16, 192, 28, 32, (0.192, 0.197, 0.189)),
    (16, 512, 14, 48, (0.257, 0.205, 0.240)),
    (16, 832, 7, 128, (0.639, 0.574, 0.400)),
]
"""5x5 on V100 SXM2 in fp32: DeepBench (baidu-research, commit da81ba7, Apache-2.0)."""


def test_large_windows_of_a_v100() -> None:
    """By the share of the peak that 3x3 have: 0.37 off, where three of their own left 0.28."""
    device, errors = load_catalog().device("v100-sxm-16gb"), []
    for images, channels, rows, outputs, measured in LARGE:
        op = _square(channels, outputs, 5, rows)
        for direction, milliseconds in zip(("forward", "data", "weight"), measured, strict=True):
            seconds = float(convolution_time(device, "fp32", op, direction, images, 4.0))  # type: ignore[arg-type]
            errors.append(abs(np.log(seconds * 1e3 / milliseconds)))
    assert np.mean(errors) < 0.38


def test_products_of_a_transformed_image_do_not_grow_with_the_window() -> None:
    """9x9 takes 3.24 times the products of 5x5, and less than half as much longer."""
    device = load_catalog().device("p100-pcie-16gb")
    five, nine = (_square(128, 128, side, 64) for side in (5, 9))
    assert nine.flops(1) == 3.24 * five.flops(1)
    slow, fast = (
        float(convolution_time(device, "fp32", op, "forward", 128, 4.0)) for op in (nine, five)
    )
    assert fast < slow < 1.5 * fast


def test_a_stride_slows_the_data_gradient_of_a_point() -> None:
    """Three of four values are zeros: DeepBench on P100, 0.32 of the peak against 0.68."""
    device = load_catalog().device("p100-pcie-16gb")
    plain = replace(SAME, window=(1, 1), channels=256, image_out=(56, 56))
    strided = replace(plain, stride=(2, 2), image_out=(28, 28))
    assert (plain.kind, strided.kind) == ("1x1", "1x1-strided")
    rates = [
        op.flops(256) / float(convolution_time(device, "fp32", op, "data", 256, 4.0))
        for op in (plain, strided)
    ]
    assert rates[0] > 1.8 * rates[1]


def test_groups_are_no_transformed_images() -> None:
    assert replace(_square(128, 128, 5, 28), groups=32).kind == "other"
    assert _square(128, 128, 5, 28).kind == _square(128, 128, 3, 28).kind == "window"
    assert replace(_square(128, 128, 5, 28), groups=2).kind == "window"
    assert _square(128, 128, 2, 28).kind == "other"


def _square(channels: int, outputs: int, window: int, rows: int) -> Convolution:
    image = (rows, rows)
    kept = replace(SAME, window=(window, window), image_in=image, image_out=image)
    return replace(kept, channels=channels, outputs=outputs)


MEASURED = [
    # precision, images, channels, rows, columns, outputs, window, milliseconds of each direction
    ("fp32", 8, 64, 112, 112, 128, 3, (0.624, 0.602, 0.997)),
    ("fp32", 16, 128, 56, 56, 256, 3, (0.900, 0.901, 0.936)),
    ("fp32", 16, 256, 28, 28, 512, 3, (0.801, 0.859, 0.766)),
    ("fp32", 16, 512, 14, 14, 512, 3, (0.506, 0.499, 0.477)),
    ("fp32", 16, 256, 20, 84, 256, 3, (0.887, 0.883, 0.857)),
    ("fp16", 16, 64, 112, 112, 128, 3, (0.355, 0.374, 0.423)),
    ("fp16", 16, 128, 56, 56, 256, 3, (0.318, 0.352, 0.353)),
    ("fp16", 16, 256, 28, 28, 512, 3, (0.310, 0.378, 0.330)),
    ("fp16", 16, 128, 40, 175, 128, 3, (0.379, 0.369, 0.396)),
    ("fp16", 16, 256, 20, 84, 256, 3, (0.354, 0.357, 0.347)),
]
"""V100 SXM2, padded by one, stride 1: DeepBench (baidu-research, commit da81ba7, Apache-2.0)."""


def test_long_layers_of_a_v100() -> None:
    device = load_catalog().device("v100-sxm-16gb")
    errors = []
    for precision, images, channels, rows, columns, outputs, window, measured in MEASURED:
        op = Convolution(
            name="conv",
            channels=channels,
            outputs=outputs,
            window=(window, window),
            stride=(1, 1),
            image_in=(rows, columns),
            image_out=(rows, columns),
        )
        value = 4.0 if precision == "fp32" else 2.0
        for direction, milliseconds in zip(("forward", "data", "weight"), measured, strict=True):
            seconds = float(convolution_time(device, precision, op, direction, images, value))  # type: ignore[arg-type]
            errors.append(abs(1e3 * seconds / milliseconds - 1.0))
    assert float(np.median(errors)) < 0.20
    assert max(errors) < 0.60
