"""Plans that are refused because their gradients would be wrong, or added up otherwise than asked.

The rules are the planner's (`parsim.plan.rules.executor`), which asks them of every plan for this
software; here they also hold for plans of other software. Reasons that depend on the schedule and
its data parallelism alone are in `executor.pipeline.runnable`.
"""

from __future__ import annotations

from executor.torch_internals.version import SPLIT_BACKWARD_MIXES_OUTPUTS, TORCH_VERSION
from parsim.errors import PlanError
from parsim.model.graph.record import Graph
from parsim.model.model import Model
from parsim.model.reader import Description
from parsim.model.transformer import TransformerSpec
from parsim.plan import CpCommType, Plan, precision
from parsim.plan.rules.degrees import KEY_VALUE_HEADS
from parsim.plan.rules.executor.runnable import unmergeable, wrong_experts
from parsim.plan.rules.executor.training import rounded, wrong_training
from parsim.schedule import Kind, Schedule


def check_parallel(plan: Plan) -> None:
    """Refuse plans whose gradients or numbers would be wrong.

    Raises:
        PlanError: naming the combination and what to use instead.
    """
    message = wrong_training(plan)
    if message is not None:
        raise PlanError(message)


def check_context(plan: Plan, spec: Description, device_type: str) -> None:
    """Refuse attention that cannot be put together from blocks of keys.

    Raises:
        PlanError: attention with dropout, or of changed scores; or, on a GPU, products in fp32:
            its kernels that give the log-sum-exp of a block are for 16 bit.
    """
    text = None if isinstance(spec, Graph) else spec
    near = text is not None and any(map(text.has_window, range(text.num_layers)))
    window = text.window if text is not None and near else None
    latent = text is not None and bool(text.kv_lora_rank)
    dropout = text is not None and text.dropout
    shaped = text is not None and (text.alibi or text.attention_cap > 0)
    message = unmergeable(plan, dropout=dropout, window=window, latent=latent, shaped=shaped)
    if message is not None:
        raise PlanError(message)
    if device_type == "cuda":
        _check_on_gpu(plan, None if shaped else window)  # changed scores are in tiles of products


def _check_on_gpu(plan: Plan, window: int | None) -> None:
    """Refuse what a GPU's kernels of attention cannot do; `window` is that of some layers."""
    wide = precision(plan.precision).activation != 2
    in_pieces = plan.cp > 1 and plan.cp_comm_type is not CpCommType.A2A
    if window is not None and wide:
        raise PlanError(
            f"window={window} with precision={plan.precision!r}: a GPU's kernel that knows windows "
            f"runs in 16 bit; use precision='bf16' or 'bf16_amp'"
        )
    if window is not None and in_pieces:
        raise PlanError(
            f"cp={plan.cp} with window={window}: the GPU's kernel that knows windows takes no "
            f"pieces of a sequence; use cp_comm_type a2a, or cp=1"
        )
    if wide and in_pieces:
        raise PlanError(
            f"cp={plan.cp} with precision={plan.precision!r}: blocks of attention run in 16 bit on "
            f"a GPU; use precision='bf16' or 'bf16_amp', or cp=1"
        )


def check_experts(plan: Plan, model: Model) -> None:
    """Refuse plans whose gradients of experts would be wrong.

    Raises:
        PlanError: naming the combination and what to use instead.
    """
    message = wrong_experts(plan, model)
    if message is not None:
        raise PlanError(message)


def check_split_backward(plan: Plan, schedule: Schedule, *, experts: bool) -> None:
    """Refuse a schedule of I and W whose gradients would be wrong, or added up in bf16.

    Raises:
        PlanError: bf16 parameters gathered by `fully_shard`, whose sum in fp32 hangs on hooks that
            W does not run; or autograd nodes with several outputs (the split projections of tensor
            parallelism, the choices of a router), under a torch that mixes their gradients in W.
    """
    message = rounded(plan, schedule.name) or _mixed(plan, schedule.name, experts)
    if message and any(action.kind is Kind.W for row in schedule.ranks for action in row):
        raise PlanError(message)


def _mixed(plan: Plan, schedule: str, experts: bool) -> str | None:
    if not SPLIT_BACKWARD_MIXES_OUTPUTS or (plan.tp == 1 and not experts):
        return None
    what, other = "experts' routers", "a dense model"
    if not experts:
        what, other = f"tp={plan.tp}'s split projections", "tp=1"
    return (
        f"{schedule} splits the backward (I and W), and torch {TORCH_VERSION} would then mix up "
        f"the gradients of {what}; use torch 2.13, {other}, or a schedule with full backwards (B)"
    )


def check_splits(
    spec: TransformerSpec, degree: int, *, sequence_parallel: bool, copies: bool = True
) -> None:
    """Refuse sizes that do not split into equal parts; with `copies` key-value heads may be fewer.

    Raises:
        PlanError: naming the size. An uneven split of the vocabulary would train, but its
            largest part sets the pace, which no plan accounts for.
    """
    sizes = {
        "num_attention_heads": spec.num_attention_heads,
        KEY_VALUE_HEADS: spec.num_key_value_heads,
        "ffn_hidden_size": spec.ffn_hidden_size,
        "padded_vocab_size": spec.vocab_rows,
    }
    if spec.shared_expert_ffn_hidden_size:
        sizes["shared_expert_ffn_hidden_size"] = spec.shared_expert_ffn_hidden_size
    if sequence_parallel:
        sizes["seq_len"] = spec.seq_len
    hints = {"padded_vocab_size": f"padded_vocab_size={-(-spec.vocab_rows // degree) * degree}"}
    if copies:
        hints[KEY_VALUE_HEADS] = "a tp that divides it or is a multiple of it"
    for name, size in sizes.items():
        copied = copies and name == KEY_VALUE_HEADS and degree % size == 0
        if size % degree and not copied:
            hint = hints.get(name, "a tp that divides it")
            raise PlanError(f"tp={degree} does not divide {name}={size}; use {hint}")
