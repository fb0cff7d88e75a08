"""Norms of hidden states, and activations of MLPs, as a spec has them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from torch import Tensor, nn
from torch.nn import functional as F

from parsim.model.transformer import TransformerSpec


def rms_norm(x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    """Normalise (.., h) by the root of the mean of squares.

    Under autocast a GPU does so in the weight's fp32: torch 2.13 by itself, and torch 2.11, whose
    one kernel is for equal dtypes, would else run one for each operation.
    """
    if x.is_cuda and x.dtype != weight.dtype:
        x = x.to(weight.dtype)
    normed: Tensor = F.rms_norm(x, x.shape[-1:], weight, epsilon)
    return normed


class RMSNorm(nn.RMSNorm):  # type: ignore[misc]
    """Torch's, in one kernel of a GPU under autocast too."""

    def forward(self, x: Tensor) -> Tensor:
        """Normalise (.., h)."""
        return rms_norm(x, self.weight, self.eps)


class OffsetRMSNorm(nn.RMSNorm):  # type: ignore[misc]
    """RMSNorm whose weight is added to 1 (Gemma): at 0 it changes nothing."""

    def forward(self, x: Tensor) -> Tensor:
        """Normalise (.., h)."""
        return rms_norm(x, 1.0 + self.weight, self.eps)


class OffsetLayerNorm(nn.LayerNorm):  # type: ignore[misc]
    """LayerNorm whose weight is added to 1 (Nemotron)."""

    def forward(self, x: Tensor) -> Tensor:
        """Normalise (.., h)."""
        return F.layer_norm(x, self.normalized_shape, 1.0 + self.weight, self.bias, self.eps)


def make_norm(spec: TransformerSpec) -> nn.Module:
    """Return a norm over the hidden width: RMSNorm or LayerNorm."""
    plain = RMSNorm if spec.rms_norm else nn.LayerNorm
    offset = OffsetRMSNorm if spec.rms_norm else OffsetLayerNorm
    return (offset if spec.offset_norms else plain)(spec.hidden_size, eps=spec.norm_epsilon)


def make_norm_after(spec: TransformerSpec) -> nn.Module:
    """Return the norm behind a part of a layer, where the spec has one."""
    return make_norm(spec) if spec.norms_after else nn.Identity()


def relu_squared(x: Tensor) -> Tensor:
    """max(x, 0)^2 (So et al. 2021, arXiv:2109.08668)."""
    return F.relu(x).square()


_ACTIVATIONS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
    "silu": F.silu,
    "relu": F.relu,
    "relu_squared": relu_squared,
}


def activation(spec: TransformerSpec) -> Callable[[Tensor], Tensor]:
    """The function between an MLP's products, or of its gate."""
    return _ACTIVATIONS[spec.activation_kind]
