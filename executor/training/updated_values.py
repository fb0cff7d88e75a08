"""The values that an optimizer updates in place of a rank's parameters.

`LocalPart` is the local part of a split parameter, `Masters` the fp32 values of one bucket's share.
Both have a copy in the host's memory, which is updated, where they are given a link to it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from executor.model.factors import local_tensor
from executor.parallel.gradients.layout import Bucket
from executor.parallel.replica import Replica
from executor.torch_internals.distributed import ALL_GATHER, stored_tensor
from executor.training.host_values import HostCopy, HostLink


class StatePiece(NamedTuple):
    """Some values of a state of one parameter, from the `start`-th of its local part on."""

    kind: str
    name: str
    parameter: nn.Parameter
    start: int
    values: Tensor


class LocalPart:
    """What torch updates of one parameter: it itself, the local part of a split one, or a copy."""

    def __init__(self, parameter: nn.Parameter, link: HostLink | None = None) -> None:
        self.parameter = parameter
        local = stored_tensor(parameter).detach()
        self._host = None if link is None else HostCopy(local, link)
        if self._host is not None:
            self.values = self._host.values
        else:
            self.values = nn.Parameter(local) if isinstance(parameter, DTensor) else parameter

    def load_gradient(self) -> None:
        """Point at the parameter's local values, which FSDP may have moved, and their gradient."""
        grad = self.parameter.grad
        if self._host is not None:
            self._host.take(None if grad is None else stored_tensor(grad))
        elif self.values is not self.parameter:
            self.values.data = stored_tensor(self.parameter).detach()
            self.values.grad = None if grad is None else stored_tensor(grad)

    def arrive(self) -> None:
        """Have the gradient on the host, where it is to go there."""
        if self._host is not None:
            self._host.arrive()

    def write_back(self) -> None:
        """Let the gradient go when the parameter does, and copy what was updated on the host."""
        if self._host is not None:
            self._host.put(stored_tensor(self.parameter).detach())
        elif self.values is not self.parameter:
            self.values.grad = None

    def reload(self) -> None:
        """Go on from the parameter as it is now."""
        if self._host is not None:
            self._host.reload(stored_tensor(self.parameter).detach())


class Masters:
    """The fp32 values of this rank's share of one bucket (the whole bucket if nothing is sharded).

    The bucket's parameters are moved into one buffer of the bucket's layout. The share of fp32
    parameters is a view of it, so that it costs no memory; that of 16-bit ones is a copy.
    """

    def __init__(self, bucket: Bucket, link: HostLink | None = None) -> None:
        self._bucket = bucket
        dtype = local_tensor(bucket.parameters[0]).dtype
        self._weights = torch.zeros_like(bucket.flat, dtype=dtype)
        with torch.no_grad():
            for parameter, part in bucket.slices():
                local = stored_tensor(parameter)
                local.data = self._weights[part].view(local.shape).copy_(local)
        mine = self._weights[bucket.share]
        self._host = None if link is None else HostCopy(mine, link)
        if self._host is not None:
            self.values = self._host.values
        else:
            self.values = nn.Parameter(mine.to(torch.float32))

    def pieces(self, kind: str, values: Tensor) -> Iterator[StatePiece]:
        """A state of the values, parameter by parameter."""
        share = self._bucket.share
        for name, (parameter, part) in zip(self._bucket.names, self._bucket.slices(), strict=True):
            low, high = max(part.start, share.start), min(part.stop, share.stop)
            if low < high:
                mine = values[low - share.start : high - share.start]
                yield StatePiece(kind, name, parameter, low - part.start, mine)

    def load_gradient(self) -> None:
        """Point the values' gradient at the bucket; a 16-bit gradient is widened."""
        gradient = self._bucket.flat[self._bucket.share]
        if self._host is not None:
            self._host.take(gradient)
        else:
            self.values.grad = gradient.to(torch.float32)

    def arrive(self) -> None:
        """Have the gradient on the host, where it is to go there."""
        if self._host is not None:
            self._host.arrive()

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def write_back(self) -> None:
        """Round the values into the parameters, and gather the other ranks' shares."""
        self.values.grad = None
        mine = self._weights[self._bucket.share]
        if self._host is not None:
            self._host.put(mine)
        elif mine.dtype != torch.float32:
            mine.copy_(self.values)
        group = self._bucket.groups.shard
        if group is not None:
            # not in place: gloo may still read the input while it writes the output
            ALL_GATHER(self._weights, mine.clone(), group=group)


def needs_masters(replica: Replica) -> bool:
    """Whether updates go through fp32 copies: 16-bit parameters, or shares of ZeRO-1."""
    if replica.buckets is None:
        return False
    dtypes = {parameter.dtype for parameter in replica.stage.parameters()}
    return replica.buckets.sharded or dtypes != {torch.float32}
