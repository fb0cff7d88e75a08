"""What torch's profiler is asked to record, where there is a GPU and where there is none."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.autograd import profiler as autograd_profiler  # noqa: E402
from torch.profiler import ProfilerActivity  # noqa: E402

from executor.torch_internals import profiler  # noqa: E402


@pytest.mark.parametrize("kernels", [False, True])
def test_kernels_are_recorded_where_they_are_asked_for(
    monkeypatch: pytest.MonkeyPatch, *, kernels: bool
) -> None:
    asked: list[Any] = []
    stand_in = SimpleNamespace(
        _prepare_profiler=lambda _, activities: asked.append(activities),
        _enable_profiler=lambda _, activities, scopes: asked.append(activities),
    )
    both = {ProfilerActivity.CPU, ProfilerActivity.CUDA}
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(autograd_profiler, "_supported_activities", lambda: both)
    monkeypatch.setattr(profiler, "_PROFILER", stand_in)
    profiler.start_ranges(kernels=kernels)
    assert asked == [both if kernels else {ProfilerActivity.CPU}] * 2
