"""The one place that names private parts of torch, and the test that they are what we expect.

Importing this module is the executor's demand for torch: without torch, or with one that is too
old, the import raises an InputError that says what to install.
"""

from __future__ import annotations

import importlib.metadata
import inspect
import os
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from types import CodeType, ModuleType
from typing import Any

from parsim.errors import InputError
from parsim.schedule import Action, Kind

MINIMUM = (2, 11)
TESTED = "2.11 and 2.13"
INSTALL = f"pip install 'torch>={MINIMUM[0]}.{MINIMUM[1]}'"


def require_torch() -> str:
    """The version of the installed torch.

    Raises:
        InputError: torch is missing or older than `MINIMUM`.
    """
    try:
        version = importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        raise InputError(
            f"running a plan needs torch, which is not installed; install it with: {INSTALL}"
        ) from None
    major, minor = version.split(".")[:2]
    if (int(major), int(minor)) < MINIMUM:
        raise InputError(
            f"torch {version} is too old to run a plan; allowed: {MINIMUM[0]}.{MINIMUM[1]} or "
            f"newer (tested: {TESTED}); update it with: {INSTALL}"
        )
    return version


TORCH_VERSION = require_torch()

SPLIT_BACKWARD_MIXES_OUTPUTS = tuple(int(x) for x in TORCH_VERSION.split(".")[:2]) < (2, 13)
"""Whether W (`stage_backward_weight`) adds up the gradients of all outputs of one autograd node, as
torch 2.11 does: wrong where several are used. 2.13 keeps them apart; 2.12 was not tried."""

import torch  # noqa: E402
import torch.distributed  # noqa: E402
from torch.autograd import Variable  # noqa: E402
from torch.autograd import profiler as autograd_profiler  # noqa: E402
from torch.distributed import _functional_collectives, fsdp  # noqa: E402
from torch.distributed.pipelining import PipelineStage, schedules  # noqa: E402
from torch.distributed.pipelining import stage as stage_module  # noqa: E402
from torch.distributed.tensor import DTensor  # noqa: E402

# Where a name is gone, `self_test` says so; until then a stand-in keeps this module importable.
RuntimeBase: Any = getattr(schedules, "_PipelineScheduleRuntime", object)
"""Runs any list of actions; private, because torch offers only fixed schedules in public."""

StageBase: Any = PipelineStage
"""One part of the model in the pipeline; public, but without types."""

TorchAction: Any = getattr(schedules, "_Action", None)
TorchKind: Any = getattr(schedules, "_ComputationType", None)
REDUCE_GRAD: Any = getattr(TorchKind, "REDUCE_GRAD", None)
FSDPModule: Any = getattr(fsdp, "FSDPModule", None)

SCHEDULES: ModuleType = schedules
"""The module whose globals the runtime looks up; `ACTION_SPAN` and `WAIT` are two of them."""

ACTION_SPAN = "record_function"
"""Global of `schedules`: a context manager called with `PP:<action>` around every action."""

WAIT = "_wait_batch_p2p"
"""Global of `schedules`: waits for the messages that an action consumes."""

SPAN_PREFIX = "PP:"

GROUPED_MM: Any = getattr(torch.nn.functional, "grouped_mm", torch._grouped_mm)
"""Products of rows sorted by group with each group's matrix; public from 2.10 on."""

STAGE_BACKWARD: Any = getattr(stage_module, "stage_backward", None)
"""Runs the backward of one microbatch from a stage's outputs, or the loss, to its inputs."""

_NAMES = ("_PipelineScheduleRuntime", "_Action", "_ComputationType", ACTION_SPAN, WAIT)
"""What is used of `schedules`."""

WAITS: tuple[tuple[Any, str], ...] = (
    (torch.distributed.Work, "wait"),
    (_functional_collectives, "wait_tensor"),
)
"""What Python calls to wait for communication; only DistributedDataParallel waits in C++."""

_KERNELS = {
    "cpu": (
        "_scaled_dot_product_flash_attention_for_cpu",
        "_scaled_dot_product_flash_attention_for_cpu_backward",
    ),
    "cuda": (
        "_scaled_dot_product_flash_attention",
        "_scaled_dot_product_flash_attention_backward",
    ),
}
"""Attention that also gives the log-sum-exp of each row of scores, and its backward; the public
function keeps that to itself, and without it blocks of keys cannot be put together."""

_WINDOW = "_flash_attention_forward"
"""A GPU's attention that knows windows; the public function has no such argument."""

FOREACH_NORM: Any = torch._foreach_norm
"""Norms of a list of tensors in few kernels; the public `get_total_norm` sums bf16 in bf16."""

FOREACH_MUL: Any = torch._foreach_mul_
"""Multiplies a list of tensors in place by a number that is on their device."""

_PROFILER: Any = getattr(torch._C, "_autograd", None)
_SCOPES: Any = getattr(getattr(torch._C, "_profiler", None), "RecordScope", None)
_EVENT_TYPE: Any = getattr(getattr(torch._C, "_profiler", None), "_EventType", None)
_ALLOCATION: Any = getattr(_EVENT_TYPE, "Allocation", None)
_ENGINE: Any = getattr(Variable, "_execution_engine", None)

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
    "get_bwd_send_ops": (),
    "set_local_fwd_input": ("prev_stage_outputs", "mb_index"),
    "set_local_bwd_input": ("next_stage_bwd_outputs", "mb_index"),
    "get_local_bwd_output": ("mb_index",),
    "_get_init_p2p_neighbors_ops": (),
}
"""What is called or overridden of the stage, with its parameters."""


def replicate_module() -> type | None:
    """The class of modules made by `replicate` on top of FSDP2; None where torch has none."""
    try:
        from torch.distributed._composable.replicate_with_fsdp import ReplicateModule
    except ImportError:
        return None
    module_type: type = ReplicateModule
    return module_type


def start_ranges(*, kernels: bool) -> None:
    """Let torch's profiler record named ranges, no operators; and the device's kernels if asked.

    Its public form cannot leave operators out.
    """
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # or it writes of each start on stderr
    session = autograd_profiler.profile(use_device="cuda" if kernels else None)
    config, activities = session.config(), session.kineto_activities
    _PROFILER._prepare_profiler(config, activities)
    _PROFILER._enable_profiler(config, activities, {_SCOPES.USER_SCOPE})


def stop_ranges() -> list[tuple[Any, bool]]:
    """What was recorded since `start_ranges`, each with whether it ran on the device.

    Names of ranges that torch repeats on the device are left out.
    """
    events = []
    for event in _PROFILER._disable_profiler().events():
        on_device = event.device_type() == torch.profiler.DeviceType.CUDA
        if not (on_device and event.is_user_annotation()):
            events.append((event, on_device))
    return events


def allocations(profiler: torch.profiler.profile) -> list[tuple[int, int]]:
    """What a profiler saw of the allocator: address and bytes, below 0 where given back, by time.

    Its public events have no addresses.
    """
    moves = []
    left = list(profiler.profiler.kineto_results.experimental_event_tree())
    while left:
        event = left.pop()
        left.extend(event.children)
        if event.tag == _ALLOCATION:
            fields = event.extra_fields
            moves.append((event.start_time_ns, fields.ptr, fields.alloc_size))
    return [(address, size) for _, address, size in sorted(moves, key=lambda move: move[0])]


def after_backward(call: Callable[[], object]) -> None:
    """Call back when the backward that is running has computed all; to be used in its hooks.

    What was asked for earlier in the same backward comes before.
    """
    _ENGINE.queue_callback(call)


def stored_tensor(parameter: Any) -> Any:  # noqa: ANN401 - torch has no types here
    """The very tensor that a parameter keeps its local values in; `to_local` gives another one."""
    return parameter._local_tensor if isinstance(parameter, DTensor) else parameter


def attend(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    causal: bool,
    mask: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """softmax(Q K^T / sqrt(d)) V of (b, a, s, d), and the fp32 log-sum-exp (b, a, s) of its rows.

    Fewer heads of keys serve equally many neighbouring heads of queries each. A `mask`, which only
    a CPU's kernel takes, is added to the scores.
    """
    kernel = getattr(torch.ops.aten, _KERNELS[q.device.type][0])
    masked = {} if mask is None else {"attn_mask": mask}
    results = kernel(q, k, v, 0.0, causal, **masked)
    return results[0], results[1]


def attend_backward(
    grad: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
    *,
    causal: bool,
    mask: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Gradients of queries, keys and values of one block of keys.

    `out` and `lse` are those of all blocks together: then the blocks' gradients add up.
    """
    kernel = getattr(torch.ops.aten, _KERNELS[q.device.type][1])
    if q.device.type == "cpu":
        masked = {} if mask is None else {"attn_mask": mask}
        gradients = kernel(grad, q, k, v, out, lse, 0.0, causal, **masked)
    else:
        none = torch.zeros((), dtype=torch.int64, device=q.device)  # no dropout, no random state
        gradients = kernel(
            grad, q, k, v, out, lse, None, None, q.shape[2], k.shape[2], 0.0, causal, none, none
        )
    return gradients[0], gradients[1], gradients[2]


def attend_window(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, window: int) -> torch.Tensor:
    """Attention by a GPU's 16-bit kernel, where a query sees the last `window` tokens alone."""
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))  # that kernel has (b, s, a, d)
    tokens = q.shape[1]
    results = getattr(torch.ops.aten, _WINDOW)(
        *(q, k, v, None, None, tokens, tokens, 0.0, True, False),
        window_size_left=window - 1,
        window_size_right=0,
    )
    attended: torch.Tensor = results[0].transpose(1, 2)
    return attended


def compile_strictly() -> None:
    """Let torch.compile raise where it would go back to eager, and leave DDP's buckets alone.

    A layer that is compiled too often is an error; torch would run it eagerly in silence. DDP's
    optimizer splits graphs at buckets, of which a layer's graph is smaller anyway.
    """
    config = torch._dynamo.config
    config.optimize_ddp = False
    for name in ("fail_on_recompile_limit_hit", "fail_on_cache_limit_hit"):
        if hasattr(config, name):
            setattr(config, name, True)
            return


def missing_compiler(device: torch.device) -> str | None:
    """What inductor lacks to compile for a device, or None."""
    if device.type == "cuda":
        from torch.utils._triton import has_triton

        return None if has_triton() else "Triton"
    from torch._inductor import cpp_builder

    try:
        cpp_builder.get_cpp_compiler()
    except Exception:  # of a class that has moved between versions
        return "a C++ compiler (g++)"
    return None


def to_torch(actions: Iterable[Action]) -> list[Any]:
    """Actions as torch's own, one for one."""
    return [
        TorchAction(stage, TorchKind(kind.name), None if microbatch < 0 else microbatch)
        for stage, kind, microbatch in actions
    ]


def self_test() -> list[str]:
    """What this torch lacks of the private parts that the executor stands on; empty is good."""
    missing = [f"schedules.{name}" for name in _NAMES if not hasattr(schedules, name)]
    if missing:
        return missing
    wrong = (
        _wrong_actions,
        _wrong_methods,
        _wrong_hooks,
        _wrong_parts,
        _wrong_kernels,
    )
    return [message for test in wrong for message in test()]


@lru_cache(maxsize=1)
def require_compatible() -> None:
    """Refuse a torch whose private parts are not as expected.

    Raises:
        InputError: naming every part that is missing.
    """
    missing = self_test()
    if missing:
        raise InputError(
            f"torch {TORCH_VERSION} cannot run pipelines here: {'; '.join(missing)}; "
            f"tested versions: {TESTED}"
        )


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


def _wrong_parts() -> Iterator[str]:
    """What communication is watched with exists, and the profiler can be kept from operators.

    What is let go earlier than torch does, or moved elsewhere, is where it is looked for.
    """
    options = getattr(getattr(_PROFILER, "_enable_profiler", None), "__doc__", "") or ""
    outputs = StageBase.backward_one_chunk.__code__.co_names
    sessions = ("_prepare_profiler", "_enable_profiler", "_disable_profiler")
    expected = (
        *((hasattr(_PROFILER, name), f"torch._C._autograd lacks {name}") for name in sessions),
        ("scopes" in options, "_enable_profiler lacks the parameter scopes"),
        (hasattr(_SCOPES, "USER_SCOPE"), "torch._C._profiler lacks RecordScope.USER_SCOPE"),
        (hasattr(_ENGINE, "queue_callback"), "autograd's engine lacks queue_callback"),
        *((hasattr(owner, name), f"{owner.__name__} lacks {name}") for owner, name in WAITS),
        ("_local_tensor" in getattr(DTensor, "__slots__", ()), "DTensor lacks _local_tensor"),
        ("fwd_cache" in outputs, "PipelineStage keeps no outputs in fwd_cache"),
        (_ALLOCATION is not None, "torch._C._profiler lacks _EventType.Allocation"),
        (STAGE_BACKWARD is not None, "pipelining.stage lacks stage_backward"),
    )
    return (message for present, message in expected if not present)


def _wrong_kernels() -> Iterator[str]:
    """The attention kernels exist and take their arguments in the order relied on."""
    ahead = ["query", "key", "value", "dropout_p", "is_causal"]
    behind = ["grad_out", "query", "key", "value", "out", "logsumexp"]
    yield from _wrong_window()
    for names in _KERNELS.values():
        for name, wanted in zip(names, (ahead, behind), strict=True):
            kernel = getattr(torch.ops.aten, name, None)
            if kernel is None:
                yield f"torch.ops.aten lacks {name}"
                continue
            arguments = [argument.name for argument in kernel.default._schema.arguments]
            if arguments[: len(wanted)] != wanted:
                yield f"{name} takes {', '.join(arguments)} where {', '.join(wanted)} are expected"


def _wrong_window() -> Iterator[str]:
    """A GPU's attention by windows takes what `attend_window` gives it."""
    kernel = getattr(torch.ops.aten, _WINDOW, None)
    if kernel is None:
        yield f"torch.ops.aten lacks {_WINDOW}"
        return
    arguments = [argument.name for argument in kernel.default._schema.arguments]
    wanted = ["query", "key", "value", "cum_seq_q", "cum_seq_k", "max_q", "max_k", "dropout_p"]
    wanted += ["is_causal", "return_debug_mask"]
    if arguments[: len(wanted)] != wanted:
        yield f"{_WINDOW} takes {', '.join(arguments)} where {', '.join(wanted)} are expected"
    for name in ("window_size_left", "window_size_right"):
        if name not in arguments:
            yield f"{_WINDOW} lacks the parameter {name}"


def _global_names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _global_names(constant)
