"""The norm of the whole model's gradient, and clipping to it.

Each rank adds the squares of what it holds, divided by the number of ranks that hold the same
values; one all-reduce of a scalar over all ranks follows. Nothing waits for the device: the factor
is a tensor, and gradients are multiplied by it even where it is 1 (Pascanu et al. 2013; the formula
is that of torch.nn.utils.clip_grad_norm_).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from executor.model.factors import local_tensor
from executor.model.module import TransformerStage
from executor.parallel.replica import Replica
from executor.torch_internals.kernels import FOREACH_MUL, FOREACH_NORM

_SMALL = 1e-6
"""Added to the norm, so that nothing is divided by 0."""


@torch.no_grad()  # type: ignore[untyped-decorator]
def clip_gradients(replicas: Sequence[Replica], largest: float) -> Tensor:
    """Scale the gradient of the whole model down to a norm of `largest`; 0 leaves it as it is.

    Returns the norm before, a scalar in fp32 that is the same on every rank. Every rank must call
    it, after the gradients were reduced.
    """
    here = [gradient for replica in replicas for gradient in _held(replica)]
    norm = _norm(here, torch.device(replicas[0].mesh.device_type))
    pieces = [piece for _, piece, _ in here]
    if largest and pieces:
        scale_down(pieces, norm, largest)
    return norm


def square_sum(pieces: Sequence[Tensor]) -> Tensor:
    """The sum of the squares of all values of some tensors, one at least: a scalar in fp32."""
    summed: Tensor = torch.stack(FOREACH_NORM(pieces, 2, torch.float32)).square().sum()
    return summed


def scale_down(pieces: Sequence[Tensor], norm: Tensor, largest: float) -> None:
    """Multiply the pieces of a gradient of that norm in place, so that it is at most `largest`."""
    FOREACH_MUL(pieces, clip_factor(norm, largest))


def gradient_values(replicas: Sequence[Replica]) -> list[Tensor]:
    """All values of gradients that this rank holds and updates from, in place."""
    return [piece for replica in replicas for _, piece, _ in _gradients_here(replica)]


def clip_factor(norm: Tensor, largest: float) -> Tensor:
    """What a gradient of that norm is multiplied by so that it is no longer than `largest`."""
    return (largest / (norm + _SMALL)).clamp(max=1.0)


def gradient_norm(replicas: Sequence[Replica]) -> float:
    """Euclidean norm of the gradient of the whole model, the same on every rank."""
    return float(clip_gradients(replicas, 0.0))


def _norm(here: Sequence[tuple[bool, Tensor, int]], device: torch.device) -> Tensor:
    """The norm over all ranks of those pieces that count, each held by so many ranks."""
    total = torch.zeros((), dtype=torch.float32, device=device)
    for copies in sorted({shared for counts, _, shared in here if counts}):
        pieces = [piece for counts, piece, shared in here if counts and shared == copies]
        total += square_sum(pieces) / copies
    if dist.get_world_size() > 1:
        dist.all_reduce(total)
    return total.sqrt()


def _held(replica: Replica) -> Iterator[tuple[bool, Tensor, int]]:
    """Whether it counts, values of a gradient here, ranks that hold the same ones.

    The copy of a tied table does not count: its stage sums it with the table's own.
    """
    stage = replica.stage
    last = isinstance(stage, TransformerStage) and stage.embedding is None
    copied = stage.tied_parameters() if last else ()
    for parameter, piece, shared in _gradients_here(replica):
        yield not any(parameter is other for other in copied), piece, shared


def _gradients_here(replica: Replica) -> Iterator[tuple[nn.Parameter, Tensor, int]]:
    """(parameter, values of its gradient here, ranks that hold the same values)."""
    plan = replica.plan
    ranks = plan.dp * plan.cp * plan.tp * plan.copies
    if replica.buckets is None:
        for parameter in replica.stage.parameters():
            if parameter.grad is not None:
                yield parameter, local_tensor(parameter.grad), ranks // parts_of(parameter)
        return
    for bucket in replica.buckets.buckets:
        for parameter, piece in bucket.pieces():
            yield parameter, piece, ranks // parts_of(parameter) // bucket.groups.shards


def parts_of(parameter: nn.Parameter) -> int:
    """Into how many parts a parameter is split over ranks."""
    if not isinstance(parameter, DTensor):
        return 1
    mesh, placements = parameter.device_mesh, enumerate(parameter.placements)
    return math.prod(
        mesh.size(dim) for dim, placement in placements if not placement.is_replicate()
    )
