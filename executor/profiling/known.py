"""Operations of torch's exported graphs that parsim knows, by their names there."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from parsim.model.graph import images, pointwise, sequences, texts
from parsim.model.graph.operation import Operation, Shape
from parsim.model.graph.pointwise import FUNCTIONS, Multiply, Pointwise
from parsim.model.networks import Pair

Arguments = Mapping[str, Any]
"""Arguments of an operation by its schema's names; tensors stand as shapes without the batch."""

Known = Callable[[Arguments, Shape, Shape], Operation | None]
"""From arguments, the first input's shape and the output's to an operation; None: not that one."""


def pair(value: int | Sequence[int]) -> Pair:
    """Rows and columns of an argument that may be one number."""
    sizes = [value] if isinstance(value, int) else list(value)
    return (sizes[0], sizes[-1])


def _conv2d(given: Arguments, inputs: Shape, output: Shape) -> Operation | None:
    padding = given["padding"]
    if set(pair(given["dilation"])) != {1} or isinstance(padding, str):
        return None
    return images.Conv2d(
        out_channels=output[0],
        kernel_size=pair(given["weight"][2:]),
        stride=pair(given["stride"]),
        padding=pair(padding),
        groups=given["groups"],
        bias=given.get("bias") is not None,
    )


def _pool(kind: type[images.MaxPool2d]) -> Known:
    def known(given: Arguments, inputs: Shape, output: Shape) -> Operation | None:
        if set(pair(given.get("dilation", 1))) != {1}:
            return None
        size = pair(given["kernel_size"])
        return kind(
            kernel_size=size,
            stride=pair(given["stride"]) if given["stride"] else size,
            padding=pair(given["padding"]),
            ceil_mode=given["ceil_mode"],
        )

    return known


def _mean(given: Arguments, inputs: Shape, output: Shape) -> Operation | None:
    kept = len(inputs) == 3 and output == (inputs[0], 1, 1)
    return images.AdaptiveAvgPool2d() if kept else None


def _flat(given: Arguments, inputs: Shape, output: Shape) -> Operation | None:
    return pointwise.Flatten() if len(output) == 1 else pointwise.Copy(output=output)


def _moved(given: Arguments, inputs: Shape, output: Shape) -> Operation | None:
    """A tensor's values in another order, where it is no view: `Writer` asks for views first."""
    return pointwise.Copy(output=output)


def _attention(given: Arguments, inputs: Shape, output: Shape) -> Operation | None:
    query, key, value = (given[name][1:] for name in ("query", "key", "value"))
    plain = given.get("attn_mask") is None and given.get("scale") is None
    if not plain or len(inputs) != 3 or key != value or key[::2] != query[::2]:
        return None
    return sequences.SelfAttention(heads=inputs[0], causal=bool(given["is_causal"]))


def _times(given: Arguments, inputs: Shape, output: Shape) -> Operation | None:
    other = given["other"]
    scales = isinstance(other, tuple) and len(inputs) == 3 and other[1:] == (inputs[0], 1, 1)
    if scales:
        return pointwise.Scale()
    return Multiply() if isinstance(other, tuple) and other[1:] == inputs == output else None


def _pointwise(function: str) -> Known:
    """A function of each value, where its constants are the usual ones."""

    def known(given: Arguments, inputs: Shape, output: Shape) -> Operation | None:
        constants = {name: given[name] for name in USUAL.get(function, {}) if name in given}
        usual = all(USUAL[function][name] == value for name, value in constants.items())
        return Pointwise(function=function) if usual else None

    return known


def _clipped(given: Arguments, inputs: Shape, output: Shape) -> Operation | None:
    names = {(-1.0, 1.0): "hardtanh", (0.0, 6.0): "relu6"}
    name = names.get((float(given["min_val"]), float(given["max_val"])))
    return Pointwise(function=name) if name else None


def _plus(given: Arguments, inputs: Shape, output: Shape) -> Operation | None:
    other = given["other"]
    return pointwise.Add() if isinstance(other, tuple) and other[1:] == inputs == output else None


def _joined(given: Arguments, inputs: Shape, output: Shape) -> Operation | None:
    axis = 1 if len(output) == 3 else len(output)
    return pointwise.Concat() if given["dim"] in (axis, axis - len(output) - 1) else None


def _upsampled(given: Arguments, inputs: Shape, output: Shape) -> Operation | None:
    factor, rest = divmod(output[1], inputs[1])
    even = not rest and output[2] == factor * inputs[2]
    return images.Upsample(factor=factor) if even else None


def _embedded(given: Arguments, inputs: Shape, output: Shape) -> Operation | None:
    rows, width = given["weight"]
    return texts.Embedding(num_embeddings=rows, embedding_dim=width)


USUAL: Mapping[str, Mapping[str, float]] = {
    "elu": {"alpha": 1.0, "scale": 1.0, "input_scale": 1.0},
    "celu": {"alpha": 1.0},
    "softplus": {"beta": 1.0, "threshold": 20.0},
}
"""Constants of `torch.nn.functional`'s defaults; others change what the twin computes."""

OPERATIONS: Mapping[str, Known] = {
    **{name: _pointwise(name) for name in FUNCTIONS},
    **{f"{name}_": _pointwise(name) for name in FUNCTIONS},
    **dict.fromkeys(("hardtanh", "hardtanh_"), _clipped),
    **dict.fromkeys(("log_sigmoid", "log_sigmoid_forward"), _pointwise("logsigmoid")),
    "conv2d": _conv2d,
    "batch_norm": lambda given, ins, out: (
        images.BatchNorm2d(affine=given.get("weight") is not None) if len(out) == 3 else None
    ),
    "instance_norm": lambda given, ins, out: images.InstanceNorm2d(
        affine=given.get("weight") is not None
    ),
    "relu": lambda given, ins, out: pointwise.Relu(in_place=False),
    "relu_": lambda given, ins, out: pointwise.Relu(in_place=True),
    "leaky_relu": lambda given, ins, out: pointwise.Relu(
        in_place=False, slope=given["negative_slope"]
    ),
    "sigmoid": lambda given, ins, out: pointwise.Sigmoid(),
    "gelu": lambda given, ins, out: texts.Gelu(),
    "max_pool2d": _pool(images.MaxPool2d),
    "avg_pool2d": _pool(images.AvgPool2d),
    "adaptive_avg_pool2d": lambda given, ins, out: images.AdaptiveAvgPool2d(
        output_size=pair(given["output_size"])
    ),
    "mean": _mean,
    "flatten": _flat,
    "view": _flat,
    "reshape": _flat,
    "add": _plus,
    "add_": _plus,
    "mul": _times,
    "cat": _joined,
    "linear": lambda given, ins, out: texts.Dense(
        out_features=out[-1], bias=given.get("bias") is not None
    ),
    "layer_norm": lambda given, ins, out: texts.LayerNorm(bias=given.get("bias") is not None),
    "dropout": lambda given, ins, out: pointwise.Dropout(p=given["p"]),
    "dropout_": lambda given, ins, out: pointwise.Dropout(p=given["p"]),
    "feature_dropout": lambda given, ins, out: pointwise.Dropout(p=given["p"], channels=True),
    "upsample_bilinear2d": _upsampled,
    "upsample_nearest2d": _upsampled,
    "embedding": _embedded,
    "scaled_dot_product_attention": _attention,
    **dict.fromkeys(("contiguous", "clone"), _moved),
}
"""The known operations, by the name of torch's without its overload."""
