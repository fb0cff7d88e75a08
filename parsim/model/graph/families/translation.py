"""Models that read one text and write another: GNMT of LSTMs, and encoders with decoders.

Source and target are taken to have as many tokens; the graph's input stands for both.

Source: PipeDream's profiles of GNMT with 8 and 16 layers (msr-fiddle/pipedream, commit 7db6a1c),
whose parameters are counted here; Wu et al. 2016 (arXiv:1609.08144); Vaswani et al. 2017
(arXiv:1706.03762); Raffel et al. 2019 (arXiv:1910.10683) and the configurations of T5 1.0.
Leaves out: lengths that differ. What a batch is padded to is the size of the graph, where it is
known of a run (column `padded_length` of measured rows).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from parsim.model.graph.pointwise import Dropout, Relu
from parsim.model.graph.record import INPUT, Graph
from parsim.model.graph.sequences import AdditiveAttention, Lstm, SelfAttention
from parsim.model.graph.sketch import Sketch
from parsim.model.graph.texts import CrossEntropy, Dense, Embedding, LayerNorm

GNMT_WORDS, GNMT_WIDTH = 32_320, 1024
GNMT_LAYERS: Mapping[str, int] = {"gnmt-8": 4, "gnmt-16": 8}
"""Layers of the encoder, and of the decoder."""

GNMT_TOKENS = 25
"""Mean tokens of a sentence in training, source and target alike; 50 is the longest that counts.

3,498,161 pairs of WMT16 English-German are left of at most 50 (NVIDIA's MLPerf v0.5 log of GNMT).
An epoch takes 824.4 / 6 minutes at 21,346 tokens/s of both sides (README of DeepLearningExamples'
GNMT, commit 0663b67, one V100 in fp32): 50.3 a pair. PipeDream's profile of 16 layers has 25 too.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Translator:
    """Sizes of an encoder with a decoder of as many layers.

    `buckets` of relative positions are learned once for either side (T5), which then has norms of
    a weight alone and products without biases; else places are fixed waves.
    """

    layers: int
    width: int
    heads: int
    head_dim: int
    inner: int
    words: int
    buckets: int = 0


TRANSLATORS: Mapping[str, Translator] = {
    "transformer-big": Translator(
        layers=6, width=1024, heads=16, head_dim=64, inner=4096, words=33_712
    ),
    "t5-small": Translator(
        layers=6, width=512, heads=8, head_dim=64, inner=2048, words=32_128, buckets=32
    ),
    "t5-base": Translator(
        layers=12, width=768, heads=12, head_dim=64, inner=3072, words=32_128, buckets=32
    ),
    "t5-large": Translator(
        layers=24, width=1024, heads=16, head_dim=64, inner=4096, words=32_128, buckets=32
    ),
    "t5-3b": Translator(
        layers=24, width=1024, heads=32, head_dim=128, inner=16384, words=32_128, buckets=32
    ),
}


def gnmt(name: str, tokens: int = GNMT_TOKENS, classes: int = 0) -> Graph:
    """GNMT: a layer is an LSTM; the decoder's see what attention makes of the encoder's output."""
    draw, count, width = Sketch(name, (tokens,)), GNMT_LAYERS[name], GNMT_WIDTH
    x = draw.node(Embedding(num_embeddings=GNMT_WORDS, embedding_dim=width), "source", INPUT)
    x = draw.end_layer(_lstm(draw, x, "encoder.0", both=True))
    for number in range(1, count):
        y = _lstm(draw, draw.node(Dropout(p=0.2), f"encoder.{number}.drop", x), f"encoder.{number}")
        x = draw.end_layer(y if number == 1 else draw.add(f"encoder.{number}.add", y, x))
    encoded = x
    x = draw.node(Embedding(num_embeddings=GNMT_WORDS, embedding_dim=width), "target", INPUT)
    x = _lstm(draw, x, "decoder.0")
    query = draw.dense(x, "attention.query", width, bias=False)
    key = draw.dense(encoded, "attention.key", width, bias=False)
    seen = draw.node(AdditiveAttention(), "attention", query, key, encoded)
    draw.end_layer(seen)
    for number in range(1, count):
        prefix = f"decoder.{number}"
        y = draw.concat(f"{prefix}.join", draw.node(Dropout(p=0.2), f"{prefix}.drop", x), seen)
        y = _lstm(draw, y, prefix)
        x = draw.end_layer(y if number == 1 else draw.add(f"{prefix}.add", y, x))
    words = draw.dense(x, "classifier", classes or GNMT_WORDS)
    draw.node(CrossEntropy(), "loss", words)
    return draw.graph()


def translator(name: str, tokens: int = 128, classes: int = 0) -> Graph:
    """One of `TRANSLATORS`: blocks of an encoder, then of a decoder that also looks at its end."""
    sizes = TRANSLATORS[name]
    draw = Sketch(name, (tokens,))
    words, normed = classes or sizes.words, bool(sizes.buckets)
    table = Embedding(num_embeddings=words, embedding_dim=sizes.width)
    x = draw.end_layer(draw.node(table, "source", INPUT))
    for number in range(sizes.layers):
        x = _attended(draw, x, f"encoder.{number}", sizes, first=number == 0)
        x = draw.end_layer(_fed(draw, x, f"encoder.{number}", sizes))
    encoded = draw.node(LayerNorm(bias=False), "encoder.norm", x) if normed else x
    shared = Embedding(num_embeddings=words, embedding_dim=sizes.width, owns_weight=False)
    x = draw.end_layer(draw.node(shared, "target", INPUT))
    for number in range(sizes.layers):
        prefix = f"decoder.{number}"
        x = _attended(draw, x, prefix, sizes, first=number == 0, causal=True)
        x = _attended(draw, x, f"{prefix}.cross", sizes, other=encoded)
        x = draw.end_layer(_fed(draw, x, prefix, sizes))
    if normed:
        x = draw.node(LayerNorm(bias=False), "decoder.norm", x)
    logits = Dense(out_features=words, bias=False, owns_weight=False)
    draw.node(CrossEntropy(), "loss", draw.node(logits, "logits", x))
    return draw.graph()


def _lstm(draw: Sketch, x: str, prefix: str, *, both: bool = False) -> str:
    return draw.node(Lstm(hidden_size=GNMT_WIDTH, bidirectional=both), prefix, x)


def _attended(
    draw: Sketch,
    x: str,
    prefix: str,
    sizes: Translator,
    *,
    first: bool = False,
    causal: bool = False,
    other: str = "",
) -> str:
    """Attention around its short cut; T5 normalises before it, the first transformer behind."""
    plain, inner = not sizes.buckets, sizes.heads * sizes.head_dim
    y = x if plain else draw.node(LayerNorm(bias=False), f"{prefix}.norm", x)
    buckets = sizes.buckets if first else 0
    core = SelfAttention(heads=sizes.heads, causal=causal, buckets=buckets)
    if other:
        query = draw.dense(y, f"{prefix}.q", inner, bias=plain)
        pair = draw.dense(other, f"{prefix}.kv", 2 * inner, bias=plain)
        y = draw.node(core, f"{prefix}.attention", query, pair)
    else:
        y = draw.dense(y, f"{prefix}.qkv", 3 * inner, bias=plain)
        y = draw.node(core, f"{prefix}.attention", y)
    y = draw.dense(y, f"{prefix}.out", sizes.width, bias=plain)
    x = draw.add(f"{prefix}.add", y, x)
    return draw.node(LayerNorm(), f"{prefix}.norm", x) if plain else x


def _fed(draw: Sketch, x: str, prefix: str, sizes: Translator) -> str:
    """The two products of a block around their short cut."""
    plain = not sizes.buckets
    y = x if plain else draw.node(LayerNorm(bias=False), f"{prefix}.mlp_norm", x)
    y = draw.dense(y, f"{prefix}.fc1", sizes.inner, bias=plain)
    y = draw.node(Relu(in_place=False), f"{prefix}.relu", y)
    y = draw.dense(y, f"{prefix}.fc2", sizes.width, bias=plain)
    x = draw.add(f"{prefix}.mlp_add", y, x)
    return draw.node(LayerNorm(), f"{prefix}.mlp_norm", x) if plain else x
