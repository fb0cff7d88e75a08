"""The private parts of torch that the executor uses are there, and their absence is noticed."""

from __future__ import annotations

from typing import Any

import pytest

from executor.torch_internals import distributed, pipelining, profiler, self_test
from parsim.errors import InputError
from parsim.schedule import Action, Kind


def test_this_torch_has_all_parts() -> None:
    assert self_test.self_test() == []


@pytest.mark.parametrize(
    "name", ["_PipelineScheduleRuntime", pipelining.ACTION_SPAN, pipelining.WAIT]
)
def test_missing_part_is_named(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.delattr(pipelining.SCHEDULES, name)
    assert self_test.self_test() == [f"schedules.{name}"]


def test_missing_method_and_hooks_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    class Changed(pipelining.RuntimeBase):  # type: ignore[misc]
        def _maybe_get_loss(self, stage: Any) -> None: ...
        def _step_microbatches(self) -> None: ...

    monkeypatch.setattr(pipelining, "RuntimeBase", Changed)
    assert self_test.self_test() == [
        "Changed._maybe_get_loss lacks the parameter mb_index",
        "_PipelineScheduleRuntime._step_microbatches does not call record_function",
        "_PipelineScheduleRuntime._step_microbatches does not call _wait_batch_p2p",
    ]


def test_missing_method_of_the_stage_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(pipelining.StageBase.__mro__[1], "get_bwd_send_ops")
    assert self_test.self_test() == ["PipelineStage lacks get_bwd_send_ops"]


def test_incompatible_torch_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(self_test, "self_test", lambda: ["schedules._Action"])
    self_test.require_compatible.cache_clear()
    with pytest.raises(InputError, match=r"schedules\._Action; tested versions: 2\.11"):
        self_test.require_compatible()


def test_actions_become_those_of_torch() -> None:
    ours = [Action(1, Kind.F, 3), Action(0, Kind.REDUCE_GRAD)]
    assert [str(action) for action in pipelining.to_torch(ours)] == ["1F3", "0REDUCE_GRAD"]


def test_missing_parts_of_the_profiler_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profiler, "_PROFILER", object())
    monkeypatch.setattr(profiler, "_SCOPES", object())
    monkeypatch.setattr(distributed, "WAITS", ((pipelining.SCHEDULES, "wait_for_nothing"),))
    assert self_test.self_test() == [
        "torch._C._autograd lacks _prepare_profiler",
        "torch._C._autograd lacks _enable_profiler",
        "torch._C._autograd lacks _disable_profiler",
        "_enable_profiler lacks the parameter scopes",
        "torch._C._profiler lacks RecordScope.USER_SCOPE",
        "torch.distributed.pipelining.schedules lacks wait_for_nothing",
    ]
