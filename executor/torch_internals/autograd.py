"""Autograd's engine: a call when the backward that is running is over."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from torch.autograd import Variable

_ENGINE: Any = getattr(Variable, "_execution_engine", None)


def after_backward(call: Callable[[], object]) -> None:
    """Call back when the backward that is running has computed all; to be used in its hooks.

    What was asked for earlier in the same backward comes before.
    """
    _ENGINE.queue_callback(call)


def missing_parts() -> Iterator[str]:
    """What this torch lacks of the engine."""
    if not hasattr(_ENGINE, "queue_callback"):
        yield "autograd's engine lacks queue_callback"
