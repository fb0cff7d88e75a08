"""What passes between two stages: shape and dtype."""

from __future__ import annotations

from typing import NamedTuple

import torch


class TensorSpec(NamedTuple):
    """Shape, for one micro-batch, and dtype of what passes between two stages."""

    shape: tuple[int, ...]
    dtype: torch.dtype

    def example(self, *, requires_grad: bool) -> torch.Tensor:
        """A tensor without storage of this shape."""
        wanted = requires_grad and self.dtype.is_floating_point
        return torch.empty(self.shape, dtype=self.dtype, device="meta", requires_grad=wanted)
