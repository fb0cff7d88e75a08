"""Small models for layouts: convolutions with wide products, a text with attention, products."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from parsim.model.graph.catalog import network
from parsim.model.graph.images import AdaptiveAvgPool2d
from parsim.model.graph.pointwise import Dropout, Flatten
from parsim.model.graph.record import INPUT, Graph
from parsim.model.graph.sequences import SelfAttention
from parsim.model.graph.sketch import Sketch
from parsim.model.graph.texts import CrossEntropy, Dense, Embedding, FirstRow, Gelu, LayerNorm


def convolutions(size: int = 8, classes: int = 12) -> Graph:
    """Two normalised convolutions with a shortcut, pooling, and two wide products."""
    draw = Sketch("convolutions", (3, size, size))
    x = draw.relu(draw.conv(INPUT, "conv1", 8, 3, padding=1, bias=True), "relu1")
    y = draw.batch_norm(draw.conv(x, "conv2", 8, 3, padding=1), "norm2")
    x = draw.max_pool(draw.relu(draw.add("add", y, x), "relu2"), "pool", 2, 2)
    x = draw.node(Flatten(), "flatten", x)
    x = draw.relu(draw.dense(x, "fc3", 24), "relu3")
    x = draw.node(Dropout(), "drop4", x)
    x = draw.relu(draw.dense(x, "fc4", 16), "relu4")
    draw.node(CrossEntropy(), "loss", draw.dense(x, "fc5", classes))
    return draw.graph()


def products(width: int = 32, classes: int = 16) -> Graph:
    """Products one behind the other, of an image as one row."""
    draw = Sketch("products", (1, 4, 4))
    x = draw.node(Flatten(), "flatten", INPUT)
    x = draw.relu(draw.dense(x, "fc1", width), "relu1")
    x = draw.relu(draw.dense(x, "fc2", 2 * width), "relu2")
    draw.node(CrossEntropy(), "loss", draw.dense(x, "fc3", classes))
    return draw.graph()


def text(words: int = 24, tokens: int = 6, width: int = 16, heads: int = 4) -> Graph:
    """A block that looks at itself and at another text, between tables that are one."""
    draw = Sketch("text", (tokens,))
    table = Embedding(num_embeddings=words, embedding_dim=width)
    x = draw.node(table, "source", INPUT)
    y = draw.dense(draw.node(LayerNorm(), "norm", x), "qkv", 3 * width)
    y = draw.node(SelfAttention(heads=heads, causal=True, buckets=8), "attention", y)
    x = draw.add("add", draw.dense(y, "out", width), x)
    query = draw.dense(x, "cross.q", width)
    pair = draw.dense(draw.node(LayerNorm(bias=False), "cross.norm", x), "cross.kv", 2 * width)
    y = draw.node(SelfAttention(heads=heads), "cross", query, pair)
    x = draw.add("cross.add", draw.dense(y, "cross.out", width), x)
    y = draw.node(Gelu(), "gelu", draw.dense(x, "fc1", 4 * width))
    x = draw.add("mlp.add", draw.dense(y, "fc2", width), x)
    logits = Dense(out_features=words, bias=False, owns_weight=False)
    draw.node(CrossEntropy(), "loss", draw.node(logits, "logits", x))
    return draw.graph()


def first_row(words: int = 16, tokens: int = 4, width: int = 8) -> Graph:
    """A text with places, of which the first row chooses among classes."""
    draw = Sketch("first row", (tokens,))
    table = Embedding(num_embeddings=words, embedding_dim=width, positions=tokens)
    x = draw.node(Gelu(), "gelu", draw.dense(draw.node(table, "table", INPUT), "fc", width))
    x = draw.dense(draw.node(FirstRow(), "first", x), "classes", words)
    draw.node(CrossEntropy(), "loss", x)
    return draw.graph()


MODELS: Mapping[str, Callable[[], Graph]] = {
    "convolutions": convolutions,
    "products": products,
    "text": text,
    "first row": first_row,
    "tasks": partial(network, "multi-task-2-4", 16, 8),
    "mean": lambda: _mean(),
}


def _mean() -> Graph:
    draw = Sketch("mean", (3, 6, 6))
    x = draw.conv(INPUT, "conv", 8, 3, padding=1)
    x = draw.node(Flatten(), "flatten", draw.node(AdaptiveAvgPool2d(), "mean", x))
    draw.node(CrossEntropy(), "loss", draw.dense(x, "fc", 6))
    return draw.graph()
