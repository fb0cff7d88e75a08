"""A GPU that is none: tensors without values that lie on `cuda`, on a machine without CUDA.

Torch's fake tensors have shapes, dtypes and devices alone, and refuse what a GPU would refuse:
operands on two devices, wrong shapes, wrong dtypes. They run the branches that ask for a GPU. Torch
without CUDA lacks two things for it: a guard that switches devices, which a compiler makes of three
lines, and an engine for backward, in place of which `backward_by_hand` walks the graph.
Nothing is computed: no value is checked, no kernel is called, no stream is waited for.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from executor.devices import accelerator
from executor.devices.accelerator import Cuda
from executor.model import first_values
from executor.model.mixture.grouped import Counts, _even
from tests.executor.fake_cuda import FakeCuda

GPU = torch.device("cuda", 0)
COMPILER = shutil.which("g++")
GUARD = """
#include <c10/core/impl/DeviceGuardImplInterface.h>
C10_REGISTER_GUARD_IMPL(CUDA, c10::impl::NoOpDeviceGuardImpl<c10::DeviceType::CUDA>)
"""


def load_guard(folder: Path) -> None:
    """Give this process a guard for `cuda` that switches nothing; nothing takes it back."""
    source, library = folder / "guard.cpp", folder / "guard.so"
    source.write_text(GUARD)
    home = Path(torch.__file__).parent
    words = [str(COMPILER), "-std=c++20", "-O0", "-shared", "-fPIC", f"-I{home / 'include'}"]
    words += [str(source), "-o", str(library), f"-L{home / 'lib'}", "-lc10"]
    subprocess.run(words, check=True)
    torch.ops.load_library(str(library))


@contextmanager
def fake_gpu() -> Iterator[None]:
    """Tensors that are made inside have no values, and `cuda` is a device among others."""
    with pytest.MonkeyPatch.context() as patch:
        answers = FakeCuda()
        patch.setattr(accelerator, "Cuda", lambda device: Cuda(device, answers))
        patch.setattr(first_values, "drawing_threads", lambda _: 1)  # this thread has fakes alone
        patch.setattr(Tensor, "backward", lambda loss, *_, **__: backward_by_hand(loss))
        patch.setattr(Counts, "listed", lambda rows: _even(rows.total, len(rows.values)))
        # autocast turns itself off where there is no CUDA
        patch.setattr(torch.amp.autocast_mode, "is_autocast_available", lambda _: True)
        patch.setattr(torch.cuda.amp.common, "amp_definitely_not_available", lambda: False)
        patch.setattr(torch.cuda, "is_bf16_supported", lambda *_: True)
        with FakeTensorMode(allow_non_fake_inputs=True):
            yield


@torch.no_grad()  # type: ignore[untyped-decorator]
def backward_by_hand(loss: Tensor) -> None:
    """Give each leaf its gradient, as torch's engine does, whose threads want a real device."""
    arrived: dict[Any, dict[int, Tensor]] = {loss.grad_fn: {0: torch.ones_like(loss)}}
    for node in _from_the_end(loss.grad_fn):
        gradients = arrived.pop(node, None)
        if gradients is not None:
            _pass_on(node, gradients, arrived)


def _from_the_end(last: Any) -> list[Any]:
    """The nodes of a graph, each ahead of those that it passes gradients to."""
    order: list[Any] = []
    seen: set[Any] = {last}
    waiting = [(last, iter(last.next_functions))]
    while waiting:
        node, ahead = waiting[-1]
        for following, _ in ahead:
            if following is not None and following not in seen:
                seen.add(following)
                waiting.append((following, iter(following.next_functions)))
                break
        else:
            order.append(node)
            waiting.pop()
    return order[::-1]


def _pass_on(node: Any, arrived: dict[int, Tensor], to: dict[Any, dict[int, Tensor]]) -> None:
    """Run a node's backward; what each node ahead of it gets is added up in `to`."""
    if type(node).__name__ == "AccumulateGrad":
        leaf, gradient = node.variable, arrived[0]
        leaf.grad = gradient if leaf.grad is None else leaf.grad + gradient
        return
    results = _run(node, [arrived.get(index) for index in range(len(node._input_metadata))])
    wanting = [following for following in node.next_functions if following[0] is not None]
    for (following, index), gradient in zip(wanting, results, strict=True):
        if gradient is None:
            continue
        wanted = following._input_metadata[index]
        if gradient.device != wanted.device:
            raise RuntimeError(f"{node.name()} gives a gradient on {gradient.device}")
        gradient = gradient.sum_to_size(wanted.shape).to(wanted.dtype)  # so does the engine
        there = to.setdefault(following, {})
        there[index] = there[index] + gradient if index in there else gradient


def _run(node: Any, gradients: list[Tensor | None]) -> list[Tensor | None]:
    """Gradients of a node's inputs that want one; a function of ours gets zeros for none."""
    if not isinstance(node, torch.autograd.function.BackwardCFunction):
        results = node(*gradients)
        every = results if isinstance(results, tuple) else (results,)
        known = zip(every, node.next_functions, strict=True)
        return [result for result, (following, _) in known if following is not None]
    given = [
        torch.zeros(meta.shape, dtype=meta.dtype, device=meta.device)
        if gradient is None
        else gradient
        for gradient, meta in zip(gradients, node._input_metadata, strict=True)
    ]
    results = node.apply(*given)
    every = results if isinstance(results, tuple) else (results,)
    # what is no tensor has a result too, and no node that follows
    return [result for result, wanted in zip(every, node.needs_input_grad, strict=True) if wanted]
