"""Context parallelism: each rank holds a piece of every sequence and attends to all of it.

Which piece is in `executor.parallel.token_order`. All but attention works on single tokens, and
needs to know their places only: position embeddings and rotary angles. Attention is, by
`cp_comm_type`,

    p2p          keys and values go round                `executor.parallel.ring`
    all_gather   they are gathered first                 `executor.parallel.gathered`
    a2a          a rank has some heads of all tokens     `executor.parallel.ulysses`
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor

from executor.devices.mesh import coordinates, ranks_by_place, replica_index, subgroup
from executor.model.attention.self_attention import Across, Core
from executor.model.module import TransformerStage
from executor.parallel.gathered import Gathered
from executor.parallel.ring import Ring
from executor.parallel.token_order import spans
from executor.parallel.ulysses import Ulysses
from parsim.errors import PlanError
from parsim.model.graph.record import Graph
from parsim.model.reader import Description
from parsim.model.transformer import TransformerSpec
from parsim.plan import AXES, CpCommType, Plan


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
