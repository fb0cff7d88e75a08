"""The private parts of torch that the executor uses are there, and their absence is noticed."""

from __future__ import annotations

import importlib.metadata
from typing import Any

import pytest

from executor.devices import compat
from parsim.errors import InputError
from parsim.schedule import Action, Kind


def test_this_torch_has_all_parts() -> None:
    assert compat.self_test() == []


@pytest.mark.parametrize("name", ["_PipelineScheduleRuntime", compat.ACTION_SPAN, compat.WAIT])
def test_missing_part_is_named(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.delattr(compat.SCHEDULES, name)
    assert compat.self_test() == [f"schedules.{name}"]


def test_missing_method_and_hooks_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    class Changed(compat.RuntimeBase):  # type: ignore[misc]
        def _maybe_get_loss(self, stage: Any) -> None: ...
        def _step_microbatches(self) -> None: ...

    monkeypatch.setattr(compat, "RuntimeBase", Changed)
    assert compat.self_test() == [
        "Changed._maybe_get_loss lacks the parameter mb_index",
        "_PipelineScheduleRuntime._step_microbatches does not call record_function",
        "_PipelineScheduleRuntime._step_microbatches does not call _wait_batch_p2p",
    ]


def test_missing_method_of_the_stage_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(compat.StageBase.__mro__[1], "get_bwd_send_ops")
    assert compat.self_test() == ["PipelineStage lacks get_bwd_send_ops"]


def test_incompatible_torch_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compat, "self_test", lambda: ["schedules._Action"])
    compat.require_compatible.cache_clear()
    with pytest.raises(InputError, match=r"schedules\._Action; tested versions: 2\.11"):
        compat.require_compatible()


def test_actions_become_those_of_torch() -> None:
    ours = [Action(1, Kind.F, 3), Action(0, Kind.REDUCE_GRAD)]
    assert [str(action) for action in compat.to_torch(ours)] == ["1F3", "0REDUCE_GRAD"]


def test_missing_torch_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", absent)
    with pytest.raises(InputError, match=r"pip install 'torch>=2\.11'$"):
        compat.require_torch()


@pytest.mark.parametrize("version", ["1.13.1", "2.10.0+cu128"])
def test_old_torch_is_refused(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    monkeypatch.setattr(importlib.metadata, "version", lambda _: version)
    with pytest.raises(InputError, match=r"too old.*allowed: 2\.11 or newer"):
        compat.require_torch()


@pytest.mark.parametrize("version", ["2.11.0+cu130", "2.13.0", "3.0.0a0+git1"])
def test_new_torch_is_accepted(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    monkeypatch.setattr(importlib.metadata, "version", lambda _: version)
    assert compat.require_torch() == version


def test_missing_parts_of_the_profiler_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compat, "_PROFILER", object())
    monkeypatch.setattr(compat, "_SCOPES", object())
    monkeypatch.setattr(compat, "WAITS", ((compat.SCHEDULES, "wait_for_nothing"),))
    assert compat.self_test() == [
        "torch._C._autograd lacks _prepare_profiler",
        "torch._C._autograd lacks _enable_profiler",
        "torch._C._autograd lacks _disable_profiler",
        "_enable_profiler lacks the parameter scopes",
        "torch._C._profiler lacks RecordScope.USER_SCOPE",
        "torch.distributed.pipelining.schedules lacks wait_for_nothing",
    ]
