"""Gradients that are summands on some axes of a mesh, added up in buckets beside the backward.

    backward     | fc6 | conv5 | conv4 | conv3 | conv2 | conv1 |  wait
    all-reduce                         | conv5 conv4   | conv3 .. conv1 |

The buckets are those that the simulator prices (`parsim/layout/laid.py`). They have groups of
ranks of their own, so that ranks which reach an operation's exchange and a full bucket in another
order do not mix them up.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from executor.devices.mesh import subgroup
from executor.model.graph.stage import key_of
from executor.model.laid import DeviceParts, LaidModel
from executor.parallel.gradients.split import copy_apart, flattened
from executor.strategies.link import size_of
from executor.strategies.work import Work
from parsim.layout.laid import Bucket, Laid, buckets
from parsim.plan.fields import BUCKET_BYTES


@dataclass(slots=True, eq=False)
class _Sum:
    """A bucket's parameters and ranks; those that backward has `missing` still, and its sending.

    What is sent is `flat`: the gradients themselves, or where they are apart `copied` ones.
    """

    parameters: list[nn.Parameter]
    group: dist.ProcessGroup | None
    missing: set[nn.Parameter] = field(default_factory=set)
    flat: Tensor | None = None
    copied: bool = False
    sent: Any = None
    since: float = 0.0

    @property
    def gradients(self) -> list[Tensor]:
        """Where its parameters' gradients are."""
        return [parameter.grad for parameter in self.parameters]


class Summands:
    """Adds up, in place, the gradients that are summands on this rank; every rank has the same."""

    def __init__(self, work: Work, parts: DeviceParts, model: LaidModel) -> None:
        self._link, self._silent = work.link, model.silent
        self._beside = work.plan.overlap_grad_reduce
        named = dict(work.replica.model.named_parameters())
        size = size_of_bucket(work)
        self._sums = [
            _Sum(
                [named[name] for name in names_of(bucket, parts.laid, named)],
                subgroup(parts.laid.mesh.groups(bucket.axes), purpose="gradients"),
            )
            for bucket in buckets(parts.laid, size, beside=self._beside)
        ]
        self._of = {id(parameter): sum_ for sum_ in self._sums for parameter in sum_.parameters}
        self._listening: list[Any] = []

    def listen(self) -> None:
        """Send what fills up from now on: the next backward is the last of its step."""
        for sum_ in self._sums:
            sum_.missing = {p for p in sum_.parameters if p not in self._silent}
        if self._beside:
            self._listening = [
                parameter.register_post_accumulate_grad_hook(self._arrived)
                for sum_ in self._sums
                for parameter in sum_.missing
            ]

    def _arrived(self, parameter: nn.Parameter) -> None:
        self._of[id(parameter)].missing.discard(parameter)
        for sum_ in self._sums:  # in one order on all ranks
            if sum_.missing:
                return
            if sum_.sent is None:
                _send(sum_)

    def finish(self) -> None:
        """Send what is not under way, and wait for everything."""
        for handle in self._listening:
            handle.remove()
        self._listening = []
        for sum_ in self._sums:
            if sum_.sent is None:
                _send(sum_)
        for sum_ in self._sums:
            self._land(sum_)

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def _land(self, sum_: _Sum) -> None:
        sum_.sent.wait()
        flat = sum_.flat
        if flat is None:
            return
        self._link.wait(received=size_of(flat.numel()), since=sum_.since)
        if sum_.copied:
            copy_apart(flat, sum_.gradients)
        sum_.flat = sum_.sent = None


@torch.no_grad()  # type: ignore[untyped-decorator]
def _send(sum_: _Sum) -> None:
    """Start a bucket's all-reduce: where the gradients are, if nothing else is between them."""
    together = _together(sum_.gradients)
    sum_.copied = together is None
    sum_.flat = flattened(sum_.gradients) if together is None else together
    sum_.since = time.perf_counter()
    sum_.sent = dist.all_reduce(sum_.flat, group=sum_.group, async_op=True)


def _together(gradients: Sequence[Tensor]) -> Tensor | None:
    """Gradients that stand side by side in one vector, as one tensor; None where they do not."""
    first = min(gradients, key=Tensor.storage_offset)
    values = sum(gradient.numel() for gradient in gradients)
    last = max(gradient.storage_offset() + gradient.numel() for gradient in gradients)
    if last - first.storage_offset() != values:
        return None
    return first.as_strided((values,), (1,))


def size_of_bucket(work: Work) -> float:
    """Values that close a bucket: what the plan says, in fp32."""
    return (work.plan.bucket_bytes or BUCKET_BYTES) / size_of(1)


def names_of(bucket: Bucket, laid: Laid, known: Sequence[str] | dict[str, Any]) -> Iterator[str]:
    """The names that a bucket's parameters have in a device's model.

    Parameters that are whole on every axis may be without names of their own: all of the module.
    """
    layer_of = {
        node.name: number for number, layer in enumerate(laid.graph.layers) for node in layer
    }
    for node, name in bucket.entries:
        prefix = f"layers.{layer_of[node]}.made.{key_of(node)}."
        if name:
            yield prefix + name
        else:
            yield from (full for full in known if full.startswith(prefix))
