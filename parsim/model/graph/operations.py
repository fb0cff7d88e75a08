"""Every operation by the name that model files and traces call it."""

from __future__ import annotations

from collections.abc import Mapping

from parsim.model.graph.images import (
    AdaptiveAvgPool2d,
    AvgPool2d,
    BatchNorm2d,
    Conv2d,
    Crop,
    InstanceNorm2d,
    LocalResponseNorm,
    MaxPool2d,
    Pad,
    Upsample,
)
from parsim.model.graph.operation import Operation
from parsim.model.graph.pointwise import (
    Add,
    Concat,
    Copy,
    Dropout,
    Flatten,
    Multiply,
    Pointwise,
    Relu,
    Scale,
    Sigmoid,
    View,
)
from parsim.model.graph.sequences import AdditiveAttention, Lstm, SelfAttention
from parsim.model.graph.texts import (
    CrossEntropy,
    Dense,
    Embedding,
    FirstRow,
    Gelu,
    LayerNorm,
    MeanLoss,
    Measured,
    Patches,
)

OPERATIONS: Mapping[str, type[Operation]] = {
    "conv2d": Conv2d,
    "batch_norm": BatchNorm2d,
    "instance_norm": InstanceNorm2d,
    "local_response_norm": LocalResponseNorm,
    "relu": Relu,
    "sigmoid": Sigmoid,
    "pointwise": Pointwise,
    "multiply": Multiply,
    "max_pool2d": MaxPool2d,
    "avg_pool2d": AvgPool2d,
    "adaptive_avg_pool2d": AdaptiveAvgPool2d,
    "add": Add,
    "scale": Scale,
    "concat": Concat,
    "flatten": Flatten,
    "view": View,
    "copy": Copy,
    "crop": Crop,
    "upsample": Upsample,
    "pad": Pad,
    "dropout": Dropout,
    "linear": Dense,
    "layer_norm": LayerNorm,
    "gelu": Gelu,
    "embedding": Embedding,
    "patches": Patches,
    "first_row": FirstRow,
    "attention": SelfAttention,
    "additive_attention": AdditiveAttention,
    "lstm": Lstm,
    "measured": Measured,
    "cross_entropy": CrossEntropy,
    "mean_loss": MeanLoss,
}

NAMES: Mapping[type[Operation], str] = {kind: name for name, kind in OPERATIONS.items()}
"""The name of each."""
