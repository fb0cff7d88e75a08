"""Rotary positions: how far each pair of a head turns a token, and the table of all turns.

Pair i of d/2 turns by theta^(-2i/d) a token (Su et al. 2021, arXiv:2104.09864, section 3.2.2). A
model stretched beyond the length L that it was first trained on turns slow pairs s times slower:

    linear   all of them                                     (Chen et al. 2023, arXiv:2306.15595)
    llama3   those of fewer than low turns in L, by part up to high turns     (arXiv:2407.21783)
    yarn     the same, but the part grows with i instead of the turns         (arXiv:2309.00071)

YaRN also scales what queries and keys are multiplied with, by 0.1 ln(s) + 1.
"""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor

from parsim.errors import ModelError
from parsim.model.transformer import TransformerSpec


class Rotary:
    """Cosines and sines of rotary positions, one table for all layers of a stage.

    Not a module and not a buffer: DDP would broadcast it and a cast of the model would round the
    angles. The table is made for the device and precision that it is first asked for. `turns` are
    the radians a token of each pair (d/2,), `scale` multiplies cosines and sines. `places` are
    those of the tokens at hand, where they are not 0, 1, 2, ...
    """

    def __init__(self, turns: Tensor, scale: float = 1.0) -> None:
        self._turns, self._scale = turns, scale
        self.places: Tensor | None = None
        self._cos_sin: tuple[Tensor, Tensor] | None = None

    @classmethod
    def of(cls, spec: TransformerSpec) -> Rotary:
        """The rotary positions of a model's heads.

        Raises:
            ModelError: a head has an odd number of rotary values.
        """
        if rotary_dim(spec) % 2:
            name = "rope_head_dim" if spec.rope_head_dim else "head_dim"
            raise ModelError(
                f"{name}={rotary_dim(spec)} is odd; rotary positions need an even {name}"
            )
        return cls(frequencies(spec), attention_factor(spec))

    @torch.inference_mode(False)  # type: ignore[untyped-decorator]  # may be kept for training
    def _build(self, like: Tensor) -> tuple[Tensor, Tensor]:
        places = torch.arange(like.shape[-2]) if self.places is None else self.places
        positions = places.to(like.device, torch.float32)
        angles = torch.outer(positions, self._turns.to(like.device)).repeat(1, 2)
        cos, sin = angles.cos() * self._scale, angles.sin() * self._scale
        return cos.to(like.dtype), sin.to(like.dtype)

    def rotate(self, x: Tensor) -> Tensor:
        """Turn each pair (i, i + d/2) of (b, a, s, d) by its position's angle."""
        kept = self._cos_sin
        if kept is None or not _serves(kept[0], x):
            kept = self._cos_sin = self._build(x)
        cos, sin = (table[: x.shape[-2]] for table in kept)
        first, second = x.chunk(2, dim=-1)
        return x * cos + torch.cat((-second, first), dim=-1) * sin


def _serves(table: Tensor, like: Tensor) -> bool:
    same = table.device == like.device and table.dtype == like.dtype
    return same and table.shape[0] >= like.shape[-2] and type(table) is type(like)


def rotary_dim(spec: TransformerSpec) -> int:
    """How many values of a head turn: all, or those that are rotary."""
    return spec.rope_head_dim or spec.head_dim


def halves_apart(x: Tensor) -> Tensor:
    """Values (.., r) whose pairs (2i, 2i + 1) turn, as pairs (i, i + r/2).

    Queries and keys are put in that order alike, so that their products are the same.
    """
    return x.unflatten(-1, (-1, 2)).transpose(-1, -2).flatten(-2)


def frequencies(spec: TransformerSpec) -> Tensor:
    """Radians a token by which each pair turns, fp32 on the CPU, (d/2,)."""
    # on the CPU even where a model is built without values
    width = rotary_dim(spec)
    steps = torch.arange(0, width, 2, dtype=torch.float32, device="cpu") / width
    turns = spec.rope_theta**-steps
    slower = turns / spec.rope_factor
    if spec.rope_scaling == "none":
        return turns
    if spec.rope_scaling == "linear":
        return slower
    kept = _kept_by_turns(spec, turns) if spec.rope_scaling == "llama3" else _kept_by_pair(spec)
    return torch.lerp(slower, turns, kept)


def _kept_by_turns(spec: TransformerSpec, turns: Tensor) -> Tensor:
    """Which part of each pair's turn stays as it is: 0 below low, 1 above high."""
    low, high = spec.rope_low_freq_factor, spec.rope_high_freq_factor
    rounds = turns * (spec.rope_original_positions / (2 * math.pi))
    return ((rounds - low) / (high - low)).clamp(0, 1)


def _kept_by_pair(spec: TransformerSpec) -> Tensor:
    """The kept share, linear between the pairs, rounded outward, that turn so often."""
    fast = max(math.floor(_pair_of(spec, spec.rope_high_freq_factor)), 0)
    slow = min(math.ceil(_pair_of(spec, spec.rope_low_freq_factor)), rotary_dim(spec) - 1)
    pairs = torch.arange(rotary_dim(spec) // 2, dtype=torch.float32, device="cpu")
    return 1.0 - ((pairs - fast) / max(slow - fast, 1e-3)).clamp(0, 1)


def _pair_of(spec: TransformerSpec, rounds: float) -> float:
    """The number i of the pair that turns so often in the original length."""
    wavelength = spec.rope_original_positions / (2 * math.pi * rounds)
    return rotary_dim(spec) * math.log(wavelength) / (2 * math.log(spec.rope_theta))


def attention_factor(spec: TransformerSpec) -> float:
    """What YaRN multiplies sines and cosines by; 1 without it."""
    if spec.rope_scaling != "yarn":
        return 1.0
    return spec.rope_attention_factor or 0.1 * math.log(spec.rope_factor) + 1.0


class Rotaries:
    """Rotary positions of a model's layers: one table for all, and one for those with a window."""

    def __init__(self, spec: TransformerSpec) -> None:
        self._spec = spec
        self._usual = Rotary.of(spec) if spec.rope else None
        self._local = self._usual
        if spec.rope and spec.window_rope_theta:
            near = replace(spec, rope_theta=spec.window_rope_theta, rope_scaling="none")
            self._local = Rotary.of(near)

    def of_layer(self, layer: int) -> Rotary | None:
        """The positions of a layer, counted from 0; None where its heads do not turn."""
        if not self._spec.turns(layer):
            return None
        return self._local if self._spec.is_local(layer) else self._usual
