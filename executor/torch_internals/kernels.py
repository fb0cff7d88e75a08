"""Kernels that torch's public functions hide: of attention, grouped products, normalisation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

GROUPED_MM: Any = getattr(torch.nn.functional, "grouped_mm", torch._grouped_mm)
"""Products of rows sorted by group with each group's matrix; public from 2.10 on."""

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

BATCH_NORM_BACKWARD: Any = torch.ops.aten.native_batch_norm_backward
"""Gradients of a batch normalisation's input, weight and bias in one kernel, with statistics that
are known or made of the input."""

FOREACH_NORM: Any = torch._foreach_norm
"""Norms of a list of tensors in few kernels; the public `get_total_norm` sums bf16 in bf16."""

FOREACH_MUL: Any = torch._foreach_mul_
"""Multiplies a list of tensors in place by a number that is on their device."""


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
        lse = lse.contiguous()  # this kernel reads it by its address, whatever the strides say
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


def missing_parts() -> Iterator[str]:
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
