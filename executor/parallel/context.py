"""Context parallelism: each rank holds a piece of every sequence and attends to all of it.

Which piece is in `executor.parallel.ring`. All but attention works on single tokens, and needs
to know their places only: position embeddings and rotary angles. Attention is, by `cp_comm_type`,

    p2p          keys and values go round                `executor.parallel.ring`
    all_gather   they are gathered first                 `executor.parallel.gathered`
    a2a          a rank has some heads of all tokens     `Ulysses`

Attention by heads: all-to-alls give each context rank some heads of the whole sequence.

    rank 0   all heads of its tokens  -> q k v ->  heads 0, 1 of all tokens  -> out ->  its tokens
    rank 1   all heads of its tokens               heads 2, 3 of all tokens             its tokens

Attention itself is then as without context parallelism, masks, windows and dropout too. Backward is
the same way back: a tensor that came by an all-to-all has its gradient sent by one, so that each
layer has four of them in either direction (DeepSpeed-Ulysses, arXiv:2309.14509).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from executor.devices.mesh import coordinates, ranks_by_place, replica_index, subgroup
from executor.model.attention.self_attention import Across, Core
from executor.model.module import TransformerStage
from executor.parallel.gathered import Gathered
from executor.parallel.ring import CONTEXT_RANGE, Ring, by_rank, in_sequence, spans
from parsim.errors import PlanError
from parsim.model.graph.record import Graph
from parsim.model.reader import Description
from parsim.model.transformer import TransformerSpec
from parsim.plan import AXES, CpCommType, Plan

Move = Callable[[Tensor], Tensor]
"""An all-to-all with the reordering around it."""

HEADS = 1
"""The dim of heads in (b, a, s, d)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ulysses:
    """Attention over the ranks of a group; called with what each of them has of (b, a, s, d).

    `attend` is the attention of whole sequences. The group's size divides the heads of queries and
    those of keys: neighbours go together, so that each rank has the keys that its queries share.
    """

    group: dist.ProcessGroup
    causal: bool
    attend: Callable[[Tensor, Tensor, Tensor], Tensor]

    def __call__(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Attend to the tokens of all ranks; the result has the heads and tokens of `q`."""
        mixed = self.attend(*(_Moved.apply(x, self.to_heads, self.to_tokens) for x in (q, k, v)))
        back: Tensor = _Moved.apply(mixed, self.to_tokens, self.to_heads)
        return back

    def to_heads(self, x: Tensor) -> Tensor:
        """All heads (b, a, s, d) of this rank's tokens for its heads of all tokens."""
        sent = torch.stack(x.chunk(dist.get_world_size(self.group), HEADS))
        return in_sequence(self._swapped(sent).unbind(), causal=self.causal)

    def to_tokens(self, x: Tensor) -> Tensor:
        """The way back of `to_heads`."""
        sent = by_rank(x, dist.get_world_size(self.group), causal=self.causal)
        return torch.cat(self._swapped(sent).unbind(), HEADS)

    def _swapped(self, sent: Tensor) -> Tensor:
        """The part for each rank (cp, ..), for the part that each rank has for this one."""
        received = torch.empty_like(sent)
        with torch.profiler.record_function(CONTEXT_RANGE):
            dist.all_to_all_single(received, sent, group=self.group)
        return received


class _Moved(torch.autograd.Function):  # type: ignore[misc]  # torch has no types here
    """A tensor moved one way between ranks, its gradient the other way."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, there: Move, back: Move) -> Tensor:  # noqa: ANN401
        ctx.back = back
        return there(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:  # noqa: ANN401
        return ctx.back(grad), None, None


def token_places(spec: TransformerSpec, cp: int, index: int) -> Tensor:
    """The places in a sequence of the tokens that the rank `index` of `cp` holds, ascending."""
    pieces = spans(index, cp, spec.seq_len // cp, causal=spec.causal)
    return torch.cat([torch.arange(piece.start, piece.stop) for piece in pieces])


def rank_part(
    spec: Description, plan: Plan, rank: int, batch: Sequence[Tensor]
) -> tuple[Tensor, ...]:
    """What a rank trains on of the (b, s) tensors of a global batch: rows and places."""
    places = None
    if not isinstance(spec, Graph) and plan.cp > 1:
        places = token_places(spec, plan.cp, coordinates(plan, rank)["cp"])
    share = replica_index(plan, rank)
    rows = (whole[replica_rows(len(whole), share, plan.microbatches)] for whole in batch)
    return tuple(row if places is None else row[:, places] for row in rows)


def context_group(plan: Plan) -> dist.ProcessGroup | None:
    """The ranks that hold the other pieces of this rank's sequences; all ranks must call it."""
    if plan.cp == 1:
        return None
    rows = ranks_by_place(plan).movedim(AXES.index("cp"), -1).reshape(-1, plan.cp)
    return subgroup(rows.tolist(), purpose="context")


def apply_context_parallel(
    stage: TransformerStage, plan: Plan, group: dist.ProcessGroup | None
) -> None:
    """Let a stage's forward take this rank's piece of each sequence, in place."""
    if group is None:
        return
    spec, index = stage.spec, dist.get_rank(group)
    places = token_places(spec, plan.cp, index)
    if stage.embedding is not None:
        stage.embedding.places = places
    for module in stage.modules():
        if isinstance(module, Core):
            module.across = _across(plan, group, module)
    for layer in stage.layers.values():
        if layer.attention.rotary is not None:
            layer.attention.rotary.places = places


def _across(plan: Plan, group: dist.ProcessGroup, core: Core) -> Across:
    """What a core does with the ranks that have the other tokens; a ring where nothing is said."""
    if plan.cp_comm_type is CpCommType.A2A:
        return Ulysses(group=group, causal=core.causal, attend=core.attend)
    if plan.cp_comm_type is CpCommType.ALL_GATHER:
        return Gathered(group=group, causal=core.causal, window=core.window)
    return Ring(group=group, causal=core.causal)


def replica_rows(rows: int, replica: int, counts: Sequence[int]) -> slice:
    """Return the rows of a batch that a data-parallel replica trains on.

    `counts` are the micro-batches of each replica, `Plan.microbatches`.

    Raises:
        PlanError: the rows cannot be shared out so.
    """
    each, left = divmod(rows, sum(counts))
    if left:
        raise PlanError(
            f"{sum(counts)} micro-batches of {len(counts)} replicas do not divide "
            f"global_batch_size={rows}; use a multiple of {sum(counts)}"
        )
    first = each * sum(counts[:replica])
    return slice(first, first + each * counts[replica])
