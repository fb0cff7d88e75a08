"""Gradients in flat buffers that are reduced bucket by bucket while backward still runs.

What torch's DistributedDataParallel does for fp32 parameters, for the cases it has no answer to:
tensor-parallel parameters, fp32 gradients of bf16 parameters, and gradients of which each rank
keeps one share (ZeRO-1). The layout of one bucket over a shard group of n ranks:

    | parameter | parameter | parame|ter | padding |
    | share of rank 0 | share of rank 1 | ... n-1  |     one reduce-scatter, equal shares
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from weakref import WeakMethod

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor

# torch 2.13 gave both a new name and warns about the old one, the only one in 2.11
ALL_GATHER: Any = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
REDUCE_SCATTER: Any = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor


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
    def place(self) -> str:
        """What this rank has of the gradients; the same on ranks that have the same."""
        return f"{self.part}.shard{_rank(self.shard)}"


@dataclass(slots=True, kw_only=True, eq=False)
class Bucket:
    """Some parameters and the buffer that their gradients share.

    `missing` are the parameters that backward has not reached, `partial` those of which each
    tensor rank has seen some tokens only, with the group over which they must be summed.
    """

    names: list[str]
    parameters: list[nn.Parameter]
    groups: Groups
    flat: Tensor
    share: slice
    missing: set[int] = field(default_factory=set)
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


class GradientBuckets:
    """Accumulates gradients in `dtype` and averages them over the groups, sent as `wire`.

    A parameter's gradient moves into its bucket as soon as backward has it, and a full bucket is
    sent at once if `overlap` and `last_backward` are set; otherwise `send` or `finish` does it.
    Split backwards write gradients without telling anybody: call `collect` after each. A parameter
    of `alone` has a bucket to itself. Gradients are multiplied by nothing: scale the loss. The
    parameters of `others` are held by other ranks, and have buckets of their own.
    """

    def __init__(
        self,
        parameters: Mapping[str, nn.Parameter],
        groups: Groups,
        *,
        bucket_bytes: float,
        dtype: torch.dtype,
        wire: torch.dtype,
        overlap: bool,
        alone: Collection[nn.Parameter] = (),
        others: Sequence[tuple[Mapping[str, nn.Parameter], Groups]] = (),
    ) -> None:
        self.wire = wire
        self.overlap = overlap
        self.last_backward = True
        self.exchanged = any(where.copies > 1 for where in (groups, *(at for _, at in others)))
        """Whether other ranks have the same parameters, even if there is none (an empty stage)."""
        limit = bucket_bytes / wire.itemsize
        self.buckets = [
            _bucket(items, where, dtype)
            for named, where in ((parameters, groups), *others)
            for items in _fill(named, limit, alone)
        ]
        self._place = {
            parameter: (index, bucket, view)
            for bucket in self.buckets
            for index, (parameter, view) in enumerate(bucket.views())
        }
        for bucket in self.buckets:
            bucket.missing = set(range(len(bucket.parameters)))
        # weak: Python does not look for cycles in hooks, so that neither would ever be freed
        arrived = WeakMethod(self._arrived)
        for parameter in self._place:
            parameter.register_post_accumulate_grad_hook(partial(_call, arrived))

    @property
    def sharded(self) -> bool:
        """Whether each rank has only its share of the averaged gradients, of some at least."""
        return any(bucket.groups.shard is not None for bucket in self.buckets)

    @property
    def reduced(self) -> int:
        """How many buckets are sent to other ranks."""
        return sum(bucket.groups.copies > 1 for bucket in self.buckets)

    def zero(self) -> None:
        """Forget the gradients of the last step."""
        for bucket in self.buckets:
            bucket.flat.zero_()

    def collect(self) -> None:
        """Move what backward left in `.grad` without a hook into the buckets."""
        for parameter in self._place:
            self._take(parameter)

    def send(self) -> Any:  # noqa: ANN401 - torch has no types here
        """Start the reduction of all buckets that are not under way; the last one's work."""
        self.collect()
        work = None
        for bucket in self.buckets:
            if not bucket.launched:
                self._launch(bucket)
            work = bucket.work
        return work

    def finish(self) -> None:
        """Send what is not under way, and wait for everything."""
        self.send()
        for bucket in self.buckets:
            self._land(bucket)

    def share(self, parameter: nn.Parameter) -> Tensor:
        """This rank's share of the bucket that a parameter is alone in."""
        _, bucket, _ = self._place[parameter]
        return bucket.flat[bucket.share]

    def gradient(self, parameter: nn.Parameter) -> Tensor:
        """The local gradient of a parameter; outside this rank's share it is not averaged."""
        return self._place[parameter][2]

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def whole(self) -> Iterator[tuple[str, nn.Parameter, Tensor]]:
        """Every parameter's averaged gradient, gathered from the shares bucket by bucket."""
        for bucket in self.buckets:
            if bucket.groups.shard is not None:
                mine = bucket.flat[bucket.share].clone()
                ALL_GATHER(bucket.flat, mine, group=bucket.groups.shard)
            for name, (parameter, view) in zip(bucket.names, bucket.views(), strict=True):
                yield name, parameter, view

    def _arrived(self, parameter: nn.Parameter) -> None:
        index, bucket, _ = self._place[parameter]
        self._take(parameter)
        if not self.last_backward:
            return
        bucket.missing.discard(index)
        if self.overlap and not bucket.missing:
            self._launch(bucket)

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def _take(self, parameter: nn.Parameter) -> None:
        grad = parameter.grad
        if grad is not None:
            index, bucket, view = self._place[parameter]
            group = partial_group(parameter, grad)
            if group is not None:
                bucket.partial[index] = group
            view.add_(local_gradient(parameter, grad))
            parameter.grad = None

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def _launch(self, bucket: Bucket) -> None:
        bucket.launched = True
        groups = bucket.groups
        if bucket.partial:
            views = [view for _, view in bucket.views()]
            group = next(iter(bucket.partial.values()))
            sum_flat([views[index] for index in sorted(bucket.partial)], group)
            bucket.partial.clear()
        if groups.divisor > 1:
            bucket.flat.div_(groups.divisor)
        if groups.copies == 1:
            return
        bucket.sent = bucket.flat if self.wire == bucket.flat.dtype else bucket.flat.to(self.wire)
        mine = bucket.sent[bucket.share]
        if groups.shard is not None:
            # not in place: gloo may still read the input while it writes the output
            scattered = torch.empty_like(mine)
            work = REDUCE_SCATTER(scattered, bucket.sent, group=groups.shard, async_op=True)
            bucket.work, bucket.sent = work, scattered
        else:
            bucket.work = dist.all_reduce(bucket.sent, group=groups.replicate, async_op=True)

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def _land(self, bucket: Bucket) -> None:
        if bucket.work is not None and bucket.sent is not None:
            bucket.work.wait()
            if bucket.groups.shard is not None and bucket.groups.replicate is not None:
                dist.all_reduce(bucket.sent, group=bucket.groups.replicate)
            if bucket.sent is not bucket.flat:
                bucket.flat[bucket.share].copy_(bucket.sent)
        bucket.work = bucket.sent = None
        bucket.launched = False
        bucket.missing = set(range(len(bucket.parameters)))


def _call(hook: WeakMethod[Any], parameter: nn.Parameter) -> None:
    call = hook()
    if call is not None:
        call(parameter)


def local_tensor(value: Tensor) -> Tensor:
    """The part of a tensor that is on this rank, without history, in the same memory."""
    detached = value.detach()
    return detached.to_local() if isinstance(detached, DTensor) else detached


def partial_group(parameter: nn.Parameter, grad: Tensor) -> dist.ProcessGroup | None:
    """The tensor ranks over which a gradient is still to be summed, if it is.

    Under sequence parallelism the gradient of a norm comes out of backward as partial sums.
    """
    if not isinstance(grad, DTensor) or not isinstance(parameter, DTensor):
        return None
    for dim, (have, want) in enumerate(zip(grad.placements, parameter.placements, strict=True)):
        if have.is_partial() and want.is_replicate():
            return grad.device_mesh.get_group(dim)
    return None


def local_gradient(parameter: nn.Parameter, grad: Tensor) -> Tensor:
    """This rank's part of a gradient, split as the parameter is; partial sums stay as they are."""
    split = isinstance(grad, DTensor) and isinstance(parameter, DTensor)
    if split and partial_group(parameter, grad) is None:
        grad = grad.redistribute(placements=parameter.placements)
    return local_tensor(grad)


def sum_flat(tensors: Sequence[Tensor], group: dist.ProcessGroup) -> None:
    """Sum tensors of one dtype over a group, in place, in one collective."""
    flat = torch.cat([tensor.flatten() for tensor in tensors])
    dist.all_reduce(flat, group=group)
    sizes = [tensor.numel() for tensor in tensors]
    for tensor, total in zip(tensors, flat.split(sizes), strict=True):
        tensor.copy_(total.view_as(tensor))


def _fill(
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


def _bucket(
    items: Sequence[tuple[str, nn.Parameter]], groups: Groups, dtype: torch.dtype
) -> Bucket:
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


def axis_group(mesh: DeviceMesh, axis: str) -> dist.ProcessGroup | None:
    """The ranks along an axis of a mesh; None where that is one."""
    return mesh[axis].get_group() if mesh[axis].size() > 1 else None


def _size(group: dist.ProcessGroup | None) -> int:
    return 1 if group is None else dist.get_world_size(group)


def _rank(group: dist.ProcessGroup | None) -> int:
    return 0 if group is None else dist.get_rank(group)
