"""Context parallelism: each rank holds a piece of every sequence and attends to all of it.

A causal sequence is cut into 2 cp pieces, and rank r holds the r-th from either end, so that all
ranks have the same work (arXiv:2311.09431). Seen by both ends the cut is plain:

    causal, cp = 2    | rank 0 | rank 1 | rank 1 | rank 0 |
    both ends         |     rank 0      |     rank 1      |

All but attention works on single tokens, and needs to know their places only: position embeddings
and rotary angles. Attention is in `executor.parallel.ring`.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor

from executor.devices.mesh import coordinates, ranks_by_place, replica_index
from executor.model.attention import Core
from executor.model.module import TransformerStage
from executor.parallel.ring import Ring
from parsim.errors import PlanError
from parsim.model.graph.record import Graph
from parsim.model.reader import Description
from parsim.model.transformer import TransformerSpec
from parsim.plan import Plan
from parsim.plan.record import AXES


def token_places(spec: TransformerSpec, cp: int, index: int) -> Tensor:
    """The places in a sequence of the tokens that the rank `index` of `cp` holds, ascending."""
    pieces = torch.arange(spec.seq_len).chunk(2 * cp if spec.causal else cp)
    if not spec.causal:
        return pieces[index]
    return torch.cat((pieces[index], pieces[-1 - index]))


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
    group: dist.ProcessGroup = dist.new_subgroups_by_enumeration(rows.tolist())[0]
    return group


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
    ring = Ring(group=group, causal=spec.causal)
    for module in stage.modules():
        if isinstance(module, Core):
            module.across = ring
    for layer in stage.layers.values():
        if layer.attention.rotary is not None:
            layer.attention.rotary.places = places


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
