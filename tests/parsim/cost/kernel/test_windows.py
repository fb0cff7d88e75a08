"""Ways of convolving a square window: which a library has, what they gain, and what they need."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from parsim.cluster.reader import load_catalog
from parsim.cost.kernel.windows import Ways, window_time
from parsim.model.networks import DIRECTIONS, Convolution, Direction

LAYER = Convolution(
    name="conv",
    channels=256,
    outputs=256,
    window=(3, 3),
    stride=(1, 1),
    image_in=(56, 56),
    image_out=(56, 56),
)
"""One of VGG-16's third block."""


def seconds(op: Convolution, direction: Direction, images: float, have: Ways) -> float:
    device = load_catalog().device("titan-x-maxwell")
    return float(window_time(device, op, direction, np.array([images]), 4.0, have)[0])


@pytest.mark.parametrize(
    ("direction", "gains"), [("forward", (5.0, 5.1)), ("data", (5.0, 5.1)), ("weight", (5.1,))]
)
def test_releases_bring_ways(direction: Direction, gains: tuple[float, ...]) -> None:
    """cuDNN 5.0 has Winograd forward and for data, 5.1 for weights too."""
    before = seconds(LAYER, direction, 16.0, Ways(cudnn=4.0))
    for cudnn in (5.0, 5.1):
        after = seconds(LAYER, direction, 16.0, Ways(cudnn=cudnn))
        assert (after < before) is (cudnn in gains)
        before = after
    assert seconds(LAYER, direction, 16.0, Ways(cudnn=9.0)) == before


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_what_does_not_fit_is_no_way(direction: Direction) -> None:
    """64 MiB hold no transformed image of 16 x 256 x 14 x 14 tiles of 36: 462 MB each way."""
    bound, free = (seconds(LAYER, direction, 16.0, Ways(workspace=b)) for b in (2.0**26, 1e12))
    assert bound > 1.1 * free
    assert bound == seconds(LAYER, direction, 16.0, Ways(cudnn=5.0, workspace=2.0**26))


def test_few_images_gain_little() -> None:
    """A small image's transformed windows are moved for few tiles: DeepBench, 0.4 of V100's peak
    with 8 images of 7x7 and 2.0 with 16 of 14x14.
    """
    device = load_catalog().device("v100-sxm-16gb")
    small = replace(LAYER, channels=512, outputs=512, image_in=(7, 7), image_out=(7, 7))
    wide = replace(small, image_in=(14, 14), image_out=(14, 14))
    rates = []
    for op, images in ((small, 8), (wide, 16)):
        time = window_time(device, op, "forward", np.array([float(images)]), 4.0, Ways())
        rates.append(op.flops(images) / float(time[0]))
    assert rates[0] < 0.8 * device.peak("fp32") < device.peak("fp32") < rates[1]


def test_few_tiles_of_frequencies_are_no_loss() -> None:
    """128 images of 11x11 are as many tiles: 7.57, 7.53 and 7.81 ms on Titan X (Maxwell) with
    cuDNN's ways by Fourier, the fastest of all (soumith/convnet-benchmarks, commit b458aab).
    """
    op = replace(LAYER, channels=384, outputs=384, image_in=(13, 13), image_out=(11, 11))
    measured = {"forward": 7.57e-3, "data": 7.53e-3, "weight": 7.81e-3}
    for direction in DIRECTIONS:
        time = seconds(op, direction, 128.0, Ways(cudnn=4.0))
        assert time == pytest.approx(measured[direction], rel=0.15)


def test_kernels_for_volta_grew_up_with_cudnn_7_3() -> None:
    """Kernels for Pascal were measured with releases before it."""
    for name, older in (("titan-v", 1.1), ("gtx-1080", 1.0)):
        device, sixteen = load_catalog().device(name), np.array([16.0])
        old, new = (
            float(window_time(device, LAYER, "data", sixteen, 4.0, Ways(cudnn=cudnn))[0])
            for cudnn in (7.0, 7.3)
        )
        assert older * new <= old < 1.45 * new


def test_groups_wait_one_after_another() -> None:
    """Two groups of half the channels have half of the products, and twice the waits."""
    grouped = replace(LAYER, groups=2)
    whole, halves = (seconds(op, "forward", 16.0, Ways()) for op in (LAYER, grouped))
    assert 0.4 * whole < halves < 0.8 * whole
    tiny = replace(LAYER, image_in=(3, 3), image_out=(3, 3))
    assert seconds(replace(tiny, groups=2), "forward", 1.0, Ways()) > 30e-6


def test_windows_that_are_not_square_are_plain_products() -> None:
    tall = replace(LAYER, window=(3, 5))
    every, none = (seconds(tall, "forward", 16.0, Ways(cudnn=c)) for c in (9.0, 0.0))
    assert every == none
