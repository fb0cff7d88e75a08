"""What a machine says of itself: the NCCL that is loaded, not the one torch was built with."""

from __future__ import annotations

import ctypes
import os
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from executor.devices.machine import (  # noqa: E402
    drawing_threads,
    nccl_version,
    use_deterministic,
)


def answers(number: int) -> Any:
    def ask(pointer: Any) -> int:
        pointer._obj.value = number
        return 0

    return SimpleNamespace(ncclGetVersion=ask)


@pytest.mark.parametrize(
    ("preloaded", "named", "expected"),
    [(23107, 22809, (2, 31, 7)), (None, 22809, (2, 28, 9)), (None, None, (2, 27, 5))],
)
def test_the_loaded_library_is_asked_before_torch(
    monkeypatch: pytest.MonkeyPatch,
    preloaded: int | None,
    named: int | None,
    expected: tuple[int, ...],
) -> None:
    def library(name: str | None) -> Any:
        number = preloaded if name is None else named
        if number is None:
            if name is None:
                return SimpleNamespace()  # this process, without NCCL
            raise OSError(f"{name}: cannot open shared object file")
        return answers(number)

    monkeypatch.setattr(ctypes, "CDLL", library)
    monkeypatch.setattr(torch.cuda.nccl, "version", lambda: (2, 27, 5))
    assert nccl_version() == expected


def test_deterministic_kernels_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", "")
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG")
    assert not torch.are_deterministic_algorithms_enabled()
    try:
        use_deterministic()
        assert torch.are_deterministic_algorithms_enabled()
        assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"
    finally:
        torch.use_deterministic_algorithms(False)
        torch.utils.deterministic.fill_uninitialized_memory = True


@pytest.mark.parametrize(("cores", "ranks", "threads"), [(16, 1, 8), (16, 4, 4), (2, 4, 1)])
def test_ranks_of_gpus_share_the_cores_that_draw(
    monkeypatch: pytest.MonkeyPatch, cores: int, ranks: int, threads: int
) -> None:
    monkeypatch.setenv("LOCAL_WORLD_SIZE", str(ranks))
    monkeypatch.setattr(os, "cpu_count", lambda: cores)
    assert drawing_threads(torch.device("cuda", 0)) == threads
    assert drawing_threads(torch.device("cpu")) == 1
