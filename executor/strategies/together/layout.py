"""Layouts on a mesh: ranks hold one model together, each its parts of all tensors.

Every rank runs the graph of its device. Changes of layout are modules of it, whose backward is the
dual change, so that plain autograd gives each parameter's summand; what is whole on some axes is
added up over them (`summands`).
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from executor.devices.all_ranks import gathered
from executor.model.boxing import assembled
from executor.model.laid import DeviceParts, LaidModel
from executor.strategies.compute import wait
from executor.strategies.replays.log import Trained
from executor.strategies.together.rounds import microbatches_of, train_together
from executor.strategies.together.summands import Summands
from executor.strategies.work import Work
from parsim.errors import PlanError
from parsim.layout.laid import whole_axes


def layout(work: Work) -> Trained:
    """Train the parts of the model that are on this rank's device."""
    return train_together(work, Devices.of(work))


@dataclass(frozen=True, slots=True)
class Devices:
    """The ranks of a mesh that hold a model together, as one of them sees it."""

    work: Work
    model: LaidModel
    parts: DeviceParts
    sums: Summands

    @classmethod
    def of(cls, work: Work) -> Devices:
        """This rank's mesh; every rank must call it."""
        if work.laid is None:
            raise PlanError("strategy layout needs a graph that is laid out")
        parts = DeviceParts(work.laid, dist.get_rank())
        model = LaidModel(parts, work.replica.model)
        return cls(work=work, model=model, parts=parts, sums=Summands(work, parts, model))

    def gradient(self, number: int) -> tuple[float, Tensor]:
        """Mean loss of the mesh's samples; the gradient of the parts that are here."""
        work, replica = self.work, self.work.replica
        replica.forget()
        losses = torch.zeros((), dtype=torch.float64)
        begin, last = time.perf_counter(), work.plan.num_microbatches - 1
        for count, batch in enumerate(microbatches_of(work, number)):
            if count == last:
                self.sums.listen()
            loss = self.model.loss(*batch)
            share = self.model.share / work.plan.num_microbatches
            loss.backward(torch.full_like(loss, share))
            losses += float(loss.detach()) * share
        wait(work, dist.get_rank(), number, time.perf_counter() - begin)
        self.sums.finish()
        dist.all_reduce(losses)
        return float(losses), replica.summed

    def norm(self, gradient: Tensor) -> Tensor:
        """The norm of the whole gradient, of which each rank has parts, and copies of others'."""
        mesh = self.parts.laid.mesh
        squares = gradient.new_zeros(())
        for name, part in self._parts(gradient):
            axes = whole_axes(self.parts.layout(name)[0], mesh)
            copies = len(mesh.groups(axes)[0])
            squares += torch.linalg.vector_norm(part).square() / copies
        dist.all_reduce(squares)
        return squares.sqrt()

    def _parts(self, flat: Tensor) -> Iterator[tuple[str, Tensor]]:
        named = dict(self.work.replica.model.named_parameters())
        sizes = [parameter.numel() for parameter in named.values()]
        for (name, parameter), part in zip(named.items(), flat.split(sizes), strict=True):
            yield name, part.view(parameter.shape)

    def named(self, flat: Tensor) -> dict[str, Tensor] | None:
        """What all ranks have, put together by the names of parameters on rank 0.

        Every rank must call it.
        """
        mine = {name: part.detach().clone() for name, part in self._parts(flat)}
        every = gathered(mine)
        if dist.get_rank():
            return None
        mesh = self.parts.laid.mesh
        places = [mesh.coordinates(rank) for rank in range(mesh.ranks)]
        whole = {}
        for name in mine:
            layout, joined = self.parts.layout(name)
            copies = {at: parts[name] for at, parts in zip(places, every, strict=True)}
            whole[name] = assembled(copies, layout, joined)
        return whole
