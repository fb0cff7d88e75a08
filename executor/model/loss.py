"""The training loss, of whole logits or of logits split over ranks by vocabulary.

Bytes per logit on a rank, of which v are those of its own dtype (fp32 4, bf16 2):

    forward    v of the logits, 4 of their softmax in fp32; then the logits are let go
    between    4
    backward   4, in which the gradient takes the softmax's place; bf16: 2 more, rounded

The peak is 4 + v: 8 in fp32 and 6 in bf16, and 4 for every further micro-batch whose forward has
run (GPipe: all of them).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from parsim.errors import ModelError
from parsim.model.graph.losses import trains
from parsim.model.graph.record import Graph
from parsim.model.reader import Description

Batch = tuple[Tensor, Tensor]
"""What a model reads, and the answers it is to give."""
LossFn = Callable[[Tensor, Tensor], Tensor]
"""The mean loss of logits, given the answers."""
IGNORED = -100
"""A target that does not count: a token that was not masked."""


def cross_entropy(
    logits: Tensor,
    targets: Tensor,
    group: dist.ProcessGroup | None = None,
    context: dist.ProcessGroup | None = None,
    words: int | None = None,
) -> Tensor:
    """Cross entropy of logits (b, s, V) and token ids (b, s), mean over counted tokens.

    In fp32, of fp64 logits in fp64. With a group its ranks hold equal parts of V, in order of
    rank. All of them get the same loss, and the gradient of their own part. The ranks of `context`
    hold other tokens of the same sequences, of which unequally many may count: the mean over these
    ranks is that over all counted tokens. Of V only `words` are words, the rest is padding, which
    is as unlikely as can be: it changes neither loss nor gradients.
    """
    value: Tensor = _CrossEntropy.apply(
        logits.flatten(0, 1), targets.flatten(), group, context, words
    )
    return value


class _CrossEntropy(torch.autograd.Function):  # type: ignore[misc]  # torch has no types here
    """Mean of log(sum_v exp(x_v)) - x_target over the rows (n, V) that count.

    Split by vocabulary three vectors of n fp32 values are all-reduced: the maximum, the target's
    logit, and the sum. Backward needs no exchange. It overwrites what forward kept, so it can run
    once only.
    """

    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401 - torch has no type for it
        logits: Tensor,
        targets: Tensor,
        group: dist.ProcessGroup | None,
        context: dist.ProcessGroup | None,
        words: int | None,
    ) -> Tensor:
        counted = targets != IGNORED
        index, here = _columns_here(targets, counted, logits.shape[1], group)
        wide = torch.promote_types(logits.dtype, torch.float32)
        shares = logits.to(wide, copy=True)
        if words is not None:
            shares[:, max(words - _first_column(shares.shape[1], group), 0) :] = -math.inf
        shares.sub_(_reduced(shares.amax(1, keepdim=True), dist.ReduceOp.MAX, group))
        wanted = shares.gather(1, index).squeeze(1).masked_fill_(~here, 0.0)
        wanted = _reduced(wanted, dist.ReduceOp.SUM, group)
        total = _reduced(shares.exp_().sum(1, keepdim=True), dist.ReduceOp.SUM, group)
        shares.div_(total)
        count = counted.sum()
        if context is not None:
            count = _reduced(count, dist.ReduceOp.SUM, context) / dist.get_world_size(context)
        ctx.save_for_backward(shares, index, here, counted / count)
        ctx.dtype = logits.dtype
        losses = total.squeeze(1).log_().sub_(wanted).masked_fill_(~counted, 0.0)
        return losses.sum() / count

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None, None]:  # noqa: ANN401
        shares, index, here, weights = ctx.saved_tensors
        shares.scatter_add_(1, index, -here.to(shares.dtype).unsqueeze(1))
        shares.mul_((weights * grad).unsqueeze(1))
        return shares.to(ctx.dtype), None, None, None, None


def _columns_here(
    targets: Tensor, counted: Tensor, width: int, group: dist.ProcessGroup | None
) -> tuple[Tensor, Tensor]:
    """The column (n, 1) of each row's target on this rank, 0 where it is not here; whether it is.

    Targets are below V: `Corpus.check` holds a text against the model before anything is built.
    """
    first = _first_column(width, group)
    here = counted & (targets >= first) & (targets < first + width)
    return (targets - first).masked_fill(~here, 0).unsqueeze(1), here


def _first_column(width: int, group: dist.ProcessGroup | None) -> int:
    """The number in the vocabulary of this rank's first column, of so many."""
    return 0 if group is None else dist.get_rank(group) * width


def _reduced(value: Tensor, kind: dist.ReduceOp, group: dist.ProcessGroup | None) -> Tensor:
    if group is not None:
        dist.all_reduce(value, kind, group=group)
    return value


def check_trainable(spec: Description) -> None:
    """Refuse a model that gives no logits, or that runs have no data for.

    Raises:
        ModelError: the spec has no head, or the graph no loss, or inputs that no data set has.
    """
    if isinstance(spec, Graph):
        if spec.further_inputs:
            raise ModelError(
                f"{spec.name} takes {', '.join(spec.entering)}, and runs have data for one input; "
                f"it can be predicted, not run"
            )
        if not trains(spec):
            raise ModelError(
                f"{spec.name} ends with '{spec.nodes[-1].name}', so there is no loss to train it "
                f"with; end it with a node of op cross_entropy, or with mean_loss of all its "
                f"cross_entropy nodes, each of one answer"
            )
        return
    if spec.head == "none":
        raise ModelError(
            f"{spec.name} has head=none, so there is no loss to train it with; "
            f"set head: {'lm' if spec.causal else 'mlm'} in the model section"
        )
