"""Gradients in flat buffers that are reduced bucket by bucket while backward still runs.

What torch's DistributedDataParallel does for fp32 parameters, for the cases it has no answer to:
tensor-parallel parameters, fp32 gradients of bf16 parameters, and gradients of which each rank
keeps one share (ZeRO-1; see `layout`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Any
from weakref import WeakMethod

import torch
import torch.distributed as dist
from torch import Tensor, nn

from executor.parallel.gradients.layout import Bucket, Groups, build_bucket, fill
from executor.parallel.gradients.split import local_gradient, partial_group, sum_partial
from executor.torch_internals.distributed import ALL_GATHER, REDUCE_SCATTER


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
            build_bucket(items, where, dtype)
            for named, where in ((parameters, groups), *others)
            for items in fill(named, limit, alone)
        ]
        self._slots = {
            parameter: (index, bucket, view)
            for bucket in self.buckets
            for index, (parameter, view) in enumerate(bucket.views())
        }
        for bucket in self.buckets:
            bucket.missing = set(range(len(bucket.parameters)))
        # weak: Python does not look for cycles in hooks, so that neither would ever be freed
        arrived = WeakMethod(self._arrived)
        for parameter in self._slots:
            parameter.register_post_accumulate_grad_hook(partial(_call, arrived))

    @property
    def sharded(self) -> bool:
        """Whether each rank has only its share of the averaged gradients, of some at least."""
        return any(bucket.groups.shard is not None for bucket in self.buckets)

    @property
    def reduced(self) -> int:
        """How many buckets are sent to other ranks."""
        return sum(bucket.groups.copies > 1 for bucket in self.buckets)

    def forget(self) -> None:
        """Forget the gradients of the last step: the next one of a parameter replaces its values.

        Nothing is written: zeros that are added to would be 8 bytes a value more.
        """
        for bucket in self.buckets:
            bucket.forgotten = set(range(len(bucket.parameters)))

    def collect(self) -> None:
        """Move what backward left in `.grad` without a hook into the buckets."""
        for parameter in self._slots:
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
        _, bucket, _ = self._slots[parameter]
        return bucket.flat[bucket.share]

    def gradient(self, parameter: nn.Parameter) -> Tensor:
        """The local gradient of a parameter; outside this rank's share it is not averaged."""
        return self._slots[parameter][2]

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
        index, bucket, _ = self._slots[parameter]
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
            index, bucket, view = self._slots[parameter]
            group = partial_group(parameter, grad)
            if group is not None:
                bucket.partial[index] = group
            arrived = local_gradient(parameter, grad)
            if index in bucket.forgotten:
                bucket.forgotten.remove(index)
                view.copy_(arrived)
            else:
                view.add_(arrived)
            parameter.grad = None

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def _launch(self, bucket: Bucket) -> None:
        bucket.launched = True
        groups = bucket.groups
        self._complete(bucket)
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

    def _complete(self, bucket: Bucket) -> None:
        """Zero what no gradient has come for, and sum what ranks have parts of."""
        if bucket.forgotten:
            views = [view for _, view in bucket.views()]
            for index in bucket.forgotten:
                views[index].zero_()
            bucket.forgotten.clear()
        if bucket.partial:
            views = [view for _, view in bucket.views()]
            sum_partial([(views[index], bucket.partial[index]) for index in sorted(bucket.partial)])
            bucket.partial.clear()

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
