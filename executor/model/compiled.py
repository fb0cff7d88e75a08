"""Layers of a transformer through torch.compile, each by itself, as torchtitan does it.

Inside what wraps a layer (gathering of sharded parameters, full recomputation): the graph holds one
layer's forward and backward, the same for all layers alike. One graph a layer without breaks: what
cannot be traced is an error, not a slow step, and so is a layer that is compiled ever again.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from executor.model.module import TransformerStage
from executor.model.stage import Stage
from executor.torch_internals.compiler import compile_strictly, missing_compiler
from parsim.errors import InputError

INDUCTOR = "inductor"
"""The backend that fuses; others trace and partition only, for tests."""

BACKENDS = (INDUCTOR, "aot_eager_decomp_partition", "aot_eager", "eager")


class CompiledLayer:
    """A layer's forward, compiled at its first call."""

    def __init__(self, layer: Any, backend: str) -> None:  # noqa: ANN401 - a block, not yet changed
        self._plain = layer._layer
        self._compiled = torch.compile(self._plain, backend=backend, fullgraph=True, dynamic=False)
        self._traced = False

    def __call__(self, x: Tensor) -> Tensor:
        """Map (b, s, h) to (b, s, h)."""
        if not self._traced:
            with torch.no_grad():
                self._plain(x)  # makes tables of angles, which a graph shall only read
            self._traced = True
        result: Tensor = self._compiled(x)
        return result


def compile_layers(stage: Stage, backend: str) -> None:
    """Let the layers of a stage run compiled, in place.

    Raises:
        InputError: an unknown backend, or inductor has nothing to compile with here.
    """
    if not isinstance(stage, TransformerStage):
        return
    check_backend(backend, next(stage.parameters(), torch.empty(0)).device)
    compile_strictly()
    for layer in stage.layers.values():
        layer._layer = CompiledLayer(layer, backend)


def check_backend(backend: str, device: torch.device) -> None:
    """Refuse what would fail in the first step.

    Raises:
        InputError: an unknown backend, or inductor has nothing to compile with here.
    """
    if backend not in BACKENDS:
        raise InputError(
            f"--compile-backend={backend!r} is unknown; allowed: {', '.join(BACKENDS)}"
        )
    missing = missing_compiler(device) if backend == INDUCTOR else None
    if missing is not None:
        raise InputError(
            f"software.compile=true: torch.compile needs {missing}, which is not there; install "
            f"it, set software.compile=false, or trace without fusing: "
            f"--compile-backend=aot_eager"
        )
