"""How parameters share flat buffers, and which share of a buffer a rank keeps.

The layout of one bucket over a shard group of n ranks:

    | parameter | parameter | parame|ter | padding |
    | share of rank 0 | share of rank 1 | ... n-1  |     one reduce-scatter, equal shares
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from executor.model.factors import local_tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Groups:
    """Ranks that hold the same parameters; None where a group would be of one rank.

    Gradients are scattered over `shard` (each rank keeps its share) and summed over `replicate`.
    The sum is that over `replicas`, where these are not the ranks of both groups. `part` names what
    the ranks hold where others hold other parts of the same parameters.
    """

    replicate: dist.ProcessGroup | None = None
    shard: dist.ProcessGroup | None = None
    replicas: int | None = None
    part: str = ""

    @property
    def copies(self) -> int:
        """Ranks whose gradients are added up."""
        return _size(self.replicate) * _size(self.shard)

    @property
    def shards(self) -> int:
        """Ranks that each keep a share."""
        return _size(self.shard)

    @property
    def divisor(self) -> int:
        """What the sum is divided by, for the mean over replicas."""
        return self.copies if self.replicas is None else self.replicas

    @property
    def share_name(self) -> str:
        """What this rank has of the gradients, named alike on ranks that have the same."""
        return f"{self.part}.shard{_rank(self.shard)}"


@dataclass(slots=True, kw_only=True, eq=False)
class Bucket:
    """Some parameters and the buffer that their gradients share.

    `missing` are the parameters that backward has not reached, `forgotten` those whose values are
    of the last step, `partial` those of which each tensor rank has seen some tokens or query heads
    only, with the group over which they must be summed.
    """

    names: list[str]
    parameters: list[nn.Parameter]
    groups: Groups
    flat: Tensor
    share: slice
    missing: set[int] = field(default_factory=set)
    forgotten: set[int] = field(default_factory=set)
    partial: dict[int, dist.ProcessGroup] = field(default_factory=dict)
    launched: bool = False
    work: Any = None
    sent: Tensor | None = None

    def slices(self) -> Iterator[tuple[nn.Parameter, slice]]:
        """Each parameter with its part of the buffer."""
        start = 0
        for parameter in self.parameters:
            end = start + local_tensor(parameter).numel()
            yield parameter, slice(start, end)
            start = end

    def views(self) -> Iterator[tuple[nn.Parameter, Tensor]]:
        """Each parameter with the values of its part, in the local shape."""
        for parameter, part in self.slices():
            yield parameter, self.flat[part].view(local_tensor(parameter).shape)

    def pieces(self) -> Iterator[tuple[nn.Parameter, Tensor]]:
        """Each parameter with what this rank's share holds of its gradient, flat."""
        for parameter, part in self.slices():
            low, high = max(part.start, self.share.start), min(part.stop, self.share.stop)
            if low < high:
                yield parameter, self.flat[low:high]


def fill(
    parameters: Mapping[str, nn.Parameter], limit: float, alone: Collection[nn.Parameter]
) -> list[list[tuple[str, nn.Parameter]]]:
    """At most `limit` values to a list, last parameters first as backward has them."""
    lists: list[list[tuple[str, nn.Parameter]]] = []
    room = 0.0
    for name, parameter in reversed(list(parameters.items())):
        size = local_tensor(parameter).numel()
        apart = any(parameter is single for single in alone)
        if not lists or apart or size > room:
            lists.append([])
            room = limit
        lists[-1].append((name, parameter))
        room = 0.0 if apart else room - size
    return lists


def build_bucket(
    items: Sequence[tuple[str, nn.Parameter]], groups: Groups, dtype: torch.dtype
) -> Bucket:
    """A bucket of some parameters, with an empty buffer."""
    locals_ = [local_tensor(parameter) for _, parameter in items]
    shards = _size(groups.shard)
    share = -(-sum(x.numel() for x in locals_) // shards)
    mine = _rank(groups.shard)
    return Bucket(
        names=[name for name, _ in items],
        parameters=[parameter for _, parameter in items],
        groups=groups,
        flat=torch.zeros(share * shards, dtype=dtype, device=locals_[0].device),
        share=slice(mine * share, (mine + 1) * share),
    )


def trainable(named: Iterable[tuple[str, nn.Parameter]]) -> dict[str, nn.Parameter]:
    """The parameters that get a gradient, each once."""
    return {name: parameter for name, parameter in named if parameter.requires_grad}


def _size(group: dist.ProcessGroup | None) -> int:
    return 1 if group is None else dist.get_world_size(group)


def _rank(group: dist.ProcessGroup | None) -> int:
    return 0 if group is None else dist.get_rank(group)
