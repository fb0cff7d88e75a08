"""Rehearsals of another device on the CPU: a stand-in is asked in place of the host."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from executor.devices import accelerator as module
from executor.devices.accelerator import Accelerator


@contextmanager
def rehearsed(stand_in: Accelerator) -> Iterator[None]:
    """Let a stand-in be asked in place of the processor inside the block."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "HOST", stand_in)
        yield
