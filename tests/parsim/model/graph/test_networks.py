"""Networks of the catalog: parameters, multiply-adds and kept values as torchvision's modules have.

The figures were counted from torchvision's public definitions in training mode (torch 2.13).
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from parsim.errors import ModelError
from parsim.model.graph.build import build_graph, first_kept
from parsim.model.graph.catalog import NETWORKS, is_network, network
from parsim.model.networks import Convolution
from parsim.model.operators import Linear

COUNTED = {
    # parameters, multiply-adds and kept values of an image (the image among them)
    "alexnet": (61_100_840, 714_188_480, 745_344),
    # 871,424 without its normalisations, which keep 96 x 54 x 54 and 256 x 26 x 26 values more
    "alexnet-2012": (50_844_008, 1_009_945_728, 1_324_416),
    "alexnet-bvlc": (60_965_224, 724_406_816, None),
    "alexnet-tf": (61_838_248, 838_788_800, None),
    "alexnet-two-towers": (60_965_224, None, None),
    "multi-task-3-64": (4_953_878, None, None),
    "overfeat-fast": (145_920_872, 2_801_403_904, None),
    "vgg11": (132_863_336, 7_609_090_048, None),
    "vgg13": (133_047_848, 11_308_466_176, None),
    "vgg19": (143_667_240, 19_632_062_464, None),
    "vgg16": (138_357_544, 15_470_264_320, 15_269_888),
    "resnet18": (11_689_512, None, None),
    "resnet34": (21_797_672, None, None),
    "resnet50": (25_557_032, 4_089_184_256, 21_075_968),
    "resnet101": (44_549_160, 7_801_405_440, 31_311_872),
    "resnet152": (60_192_808, None, None),
    "resnet200-v2": (64_666_152, None, None),
    "densenet121": (7_978_856, 2_834_161_664, None),
    "densenet161": (28_681_000, 7_727_907_072, None),
    "densenet169": (14_149_480, 3_359_843_328, None),
    "densenet201": (20_013_928, 4_291_365_888, None),
    "googlenet": (6_998_552, 1_582_671_872, None),
    "resnet50-v1": (25_557_032, 3_857_973_248, None),
    "resnet101-v1": (44_549_160, 7_570_194_432, None),
    "resnet152-v1": (60_192_808, 11_282_415_616, None),
    "resnext50-32x4d": (25_028_904, None, None),
    "resnext101-32x4d": (44_177_704, 7_969_996_800, 41_296_896),
    "se-resnext101-32x4d": (48_955_416, None, None),
    "inception-v3": (27_161_264, 5_718_899_296, 23_153_739),
    "vit-b-16": (86_567_656, None, None),
    "vit-l-16": (304_326_632, 61_554_712_576, None),
    "vit-h-14": (632_045_800, None, None),
    "gnmt-8": (193_765_952, None, None),
    "gnmt-16": (277_717_568, None, None),
    "t5-small": (60_506_624, None, None),
    "t5-base": (222_903_552, None, None),
    "t5-large": (737_668_096, None, None),
    "t5-3b": (2_851_598_336, None, None),
    "transformer-big": (210_878_464, None, None),
    "u-net-5-64": (232_687_328, 48_987_242_496, None),
    "u-net-6-72": (362_157_516, None, None),
    "u-net-11-128": (2_213_834_176, None, None),
    "amoebanet-d-18-208": (81_505_540, None, None),
    "amoebanet-d-18-256": (122_470_120, 15_170_093_056, None),
    "amoebanet-d-36-544": (1_055_832_376, None, None),
}


@pytest.mark.parametrize("name", COUNTED)
def test_counts_are_those_of_the_module(name: str) -> None:
    parameters, products, kept = COUNTED[name]
    graph = network(name)
    model = build_graph(graph)
    assert model.parameters == parameters
    if products is not None:
        assert model.forward_flops(3) == 2 * 3 * products
    if kept is not None:
        assert sum(first_kept(graph).values()) == kept


def test_resnet200_by_hand() -> None:
    """66 bottlenecks of (a, w, 4 w) channels, normalised ahead, and four short cuts of 1x1."""
    count, channels = 3 * 64 * 49 + 2 * 64, 64
    for part, blocks in enumerate((3, 24, 36, 3)):
        width = 64 * 2**part
        for block in range(blocks):
            count += channels * width + 9 * width * width + 4 * width * width
            count += 2 * (channels * (part + block > 0) + 2 * width)
            count += 0 if block else channels * 4 * width
            channels = 4 * width
    count += 2 * channels + 1001 * channels - channels + 1000
    assert build_graph(network("resnet200-v2")).parameters == count


def test_gradient_of_the_image_where_it_is_asked_for() -> None:
    graph = network("vgg11")
    firsts = [
        build_graph(known).layers[0].operators[0]
        for known in (graph, replace(graph, asks_input=True))
    ]
    assert [isinstance(op, Convolution) and op.input_gradient for op in firsts] == [False, True]


def test_linear_layers_of_vgg_hold_nine_tenths() -> None:
    model = build_graph(network("vgg16"))
    products = [op for layer in model.layers for op in layer.operators if isinstance(op, Linear)]
    assert sum(op.repeated_parameters for op in products) == 123_642_856


def test_tensors_of_parameters_are_counted_as_modules_have_them() -> None:
    """53 convolutions, 53 normalisations of two and a product with its bias: len(parameters())."""
    assert build_graph(network("resnet50")).parameter_tensors == 161
    assert build_graph(network("alexnet")).parameter_tensors == 16


def test_equal_blocks_are_one_layer_and_borders_differ() -> None:
    model = build_graph(network("resnet50"))
    assert (model.num_layers, len(model.kinds)) == (18, 11)
    blocks = model.blocks
    assert blocks[2] is blocks[3]
    assert blocks[0].outputs == 64 * 56 * 56
    assert blocks[3].outputs == 256 * 56 * 56
    assert blocks[4].outputs == 512 * 28 * 28
    assert blocks[-1].outputs == 1


def test_every_network_is_known_in_any_case_and_takes_another_image() -> None:
    assert all(is_network(name.upper()) for name in NETWORKS)
    assert not is_network("llama3-8b")
    small = network("resnet18", 64, 10)
    assert small.input_shape == (3, 64, 64)
    assert build_graph(small).parameters == 11_689_512 - 990 * 513


def test_transformer_big_by_hand() -> None:
    """6 blocks of 4 (d^2 + d) + 2 x 4 d^2 + 5 d + norms, 6 with a second attention, one table."""
    d = 1024
    attention, mlp, norm = 4 * (d * d + d), 8 * d * d + 5 * d, 2 * d
    blocks = 6 * (attention + mlp + 2 * norm) + 6 * (2 * attention + mlp + 3 * norm)
    assert build_graph(network("transformer-big")).parameters == blocks + 33_712 * d


def test_image_that_is_too_small_is_refused() -> None:
    with pytest.raises(ModelError, match="alexnet with image_size=8: node"):
        network("alexnet", 8)
