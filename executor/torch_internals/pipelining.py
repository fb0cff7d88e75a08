"""Torch's pipeline runtime: it runs any list of actions, which torch offers only in private."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator
from types import CodeType, ModuleType
from typing import Any

from torch.distributed.pipelining import PipelineStage, schedules
from torch.distributed.pipelining import stage as stage_module

from parsim.schedule import Action, Kind

# Where a name is gone, `missing_parts` says so; until then a stand-in keeps this module importable.
RuntimeBase: Any = getattr(schedules, "_PipelineScheduleRuntime", object)
"""Runs any list of actions; private, because torch offers only fixed schedules in public."""

StageBase: Any = PipelineStage
"""One part of the model in the pipeline; public, but without types."""

TorchAction: Any = getattr(schedules, "_Action", None)
TorchKind: Any = getattr(schedules, "_ComputationType", None)
REDUCE_GRAD: Any = getattr(TorchKind, "REDUCE_GRAD", None)

SCHEDULES: ModuleType = schedules
"""The module whose globals the runtime looks up; `ACTION_SPAN` and `WAIT` are two of them."""

ACTION_SPAN = "record_function"
"""Global of `schedules`: a context manager called with `PP:<action>` around every action."""

WAIT = "_wait_batch_p2p"
"""Global of `schedules`: waits for the messages that an action consumes."""

SEND_TOGETHER: Any = getattr(schedules, "_batch_p2p", None)
"""Starts messages as the runtime starts those that they meet; a list of what to wait for."""

SPAN_PREFIX = "PP:"

STAGE_BACKWARD: Any = getattr(stage_module, "stage_backward", None)
"""Runs the backward of one microbatch from a stage's outputs, or the loss, to its inputs."""

_NAMES = (
    *("_PipelineScheduleRuntime", "_Action", "_ComputationType"),
    *("_batch_p2p", ACTION_SPAN, WAIT),
)
"""What is used of `schedules`."""

_RUNTIME: dict[str, tuple[str, ...]] = {
    "_prepare_schedule_with_comms": ("actions", "format"),
    "register_custom_function": ("computation_type", "custom_function"),
    "_maybe_compute_loss": ("stage", "output", "target_mbs", "mb_index"),
    "_maybe_get_loss": ("stage", "mb_index"),
    "_update_losses": ("stages", "losses"),
    "step": ("target", "losses", "return_outputs"),
}
"""Methods of the runtime that are called or overridden, with the parameters relied on."""

_STAGE: dict[str, tuple[str, ...]] = {
    "__init__": (
        *("submodule", "stage_index", "num_stages", "device"),
        *("input_args", "output_args", "group"),
    ),
    "forward_maybe_with_nosync": ("args",),
    "backward_weight_one_chunk": (),
    "backward_maybe_with_nosync": ("backward_type", "bwd_kwargs", "last_backward"),
    "get_fwd_recv_ops": ("fwd_chunk_id",),
    "get_bwd_recv_ops": ("bwd_chunk_id",),
    "get_fwd_send_ops": ("fwd_chunk_id",),
    "get_bwd_send_ops": ("bwd_chunk_id",),
    "_prepare_forward_infra": (),
    "_prepare_backward_infra": (),
    "set_local_fwd_input": ("prev_stage_outputs", "mb_index"),
    "set_local_bwd_input": ("next_stage_bwd_outputs", "mb_index"),
    "get_local_bwd_output": ("mb_index",),
    "_get_init_p2p_neighbors_ops": (),
}
"""What is called or overridden of the stage, with its parameters."""


def to_torch(actions: Iterable[Action]) -> list[Any]:
    """Actions as torch's own, one for one."""
    return [
        TorchAction(stage, TorchKind(kind.name), None if microbatch < 0 else microbatch)
        for stage, kind, microbatch in actions
    ]


def missing_parts() -> Iterator[str]:
    """What this torch lacks of the pipeline runtime."""
    absent = [f"schedules.{name}" for name in _NAMES if not hasattr(schedules, name)]
    if absent:
        yield from absent
        return
    yield from _wrong_actions()
    yield from _wrong_methods()
    yield from _wrong_hooks()
    if "fwd_cache" not in StageBase.backward_one_chunk.__code__.co_names:
        yield "PipelineStage keeps no outputs in fwd_cache"  # where they are let go early
    if STAGE_BACKWARD is None:
        yield "pipelining.stage lacks stage_backward"


def _wrong_actions() -> Iterator[str]:
    """Every kind of action exists and is written as parsim writes it."""
    values = {member.value for member in TorchKind}
    for kind in Kind:
        if kind.name not in values:
            yield f"_ComputationType lacks {kind.name}"
            continue
        ours = Action(2, kind, 1 if kind.has_microbatch else -1)
        theirs = str(to_torch([ours])[0])
        if theirs != str(ours):
            yield f"_Action writes {theirs} where {ours} is expected"


def _wrong_methods() -> Iterator[str]:
    """The methods that are called or overridden exist and take the parameters relied on."""
    for owner, wanted in ((RuntimeBase, _RUNTIME), (StageBase, _STAGE)):
        for name, parameters in wanted.items():
            method = getattr(owner, name, None)
            if method is None:
                yield f"{owner.__name__} lacks {name}"
                continue
            accepted = inspect.signature(method).parameters
            lacking = [parameter for parameter in parameters if parameter not in accepted]
            if lacking:
                yield f"{owner.__name__}.{name} lacks the parameter {', '.join(lacking)}"


def _wrong_hooks() -> Iterator[str]:
    """Replacing a module global records nothing unless the runtime looks it up by that name."""
    used = set(_global_names(RuntimeBase._step_microbatches.__code__))
    for name in (ACTION_SPAN, WAIT):
        if name not in used:
            yield f"_PipelineScheduleRuntime._step_microbatches does not call {name}"


def _global_names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _global_names(constant)
