"""The user's module and its input: a function of a file, and sizes such as 32x3x224x224."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from parsim.errors import InputError, did_you_mean, shown

WORDS = 100
"""Token ids are below this, for every vocabulary has as many."""


def built(target: str) -> nn.Module:
    """Call the function of `FILE.py:FUNCTION` and return the module that it builds.

    Raises:
        InputError: no such file or function, it fails, or it returns something else.
    """
    path, _, name = target.rpartition(":")
    if not path.endswith(".py") or not name.isidentifier():
        raise InputError(f"'{shown(target)}' must be FILE.py:FUNCTION, such as net.py:build_model")
    function = getattr(_loaded(Path(path)), name, None)
    if not callable(function):
        near = did_you_mean(name, [n for n in vars(_loaded(Path(path))) if not n.startswith("_")])
        raise InputError(f"{path} has no function '{shown(name)}'{near}")
    try:
        model = function()
    except Exception as reason:  # whatever the user's code raises
        raise InputError(f"{target} failed: {type(reason).__name__}: {reason}") from None
    if not isinstance(model, nn.Module):
        raise InputError(f"{target} returned {type(model).__name__}; it must return a torch module")
    return model.train()


def example(text: str, model: nn.Module) -> Tensor:
    """A batch of the sizes of a text: values, or token ids where an embedding reads them.

    Raises:
        InputError: the text is no list of sizes.
    """
    if not re.fullmatch(r"[1-9]\d{0,8}(x[1-9]\d{0,8})+", text):
        raise InputError(f"--input '{shown(text)}' must be BATCHxSIZES, such as 32x3x224x224")
    sizes = tuple(map(int, text.split("x")))
    first = next((m for m in model.modules() if not list(m.children())), None)
    if len(sizes) == 2 and isinstance(first, nn.Embedding):
        return torch.randint(min(WORDS, first.num_embeddings), sizes)
    return torch.randn(sizes)


def _loaded(path: Path) -> Any:  # noqa: ANN401 - a module of the user's
    if not path.is_file():
        raise InputError(f"{path}: no such file")
    spec = importlib.util.spec_from_file_location("profiled", path)
    if spec is None or spec.loader is None:
        raise InputError(f"{path}: cannot be loaded as Python")
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(path.resolve().parent))
    try:
        spec.loader.exec_module(module)
    except Exception as reason:  # whatever the user's code raises
        raise InputError(f"{path}: {type(reason).__name__}: {reason}") from None
    return module
