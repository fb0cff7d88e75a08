"""How a stack stores images, and the library that convolves and normalises them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class ConvolutionHabits:
    """How a stack stores images, and the library that convolves and normalises them."""

    # Precisions in which images are stored as kernels want them, channels innermost.
    channels_last: tuple[str, ...]
    # Release of cuDNN, which says what ways of convolving there are in fp32 (`kernel/windows.py`).
    cudnn: float
    # Bytes that a convolution may take beside its tensors.
    convolution_workspace: float
    # Release of cuDNN from which on batch normalisation asks for its persistent kernels
    # (`cost/layer/eager.py`).
    persistent_norms: float
    # Whether gradients of convolutions are made in a layout of the library's first
    # (`cost/layer/kept/graph_backward.py`).
    reorders_convolutions: bool
