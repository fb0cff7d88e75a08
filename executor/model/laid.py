"""The part of a laid-out graph that one device runs: its modules, weights, and losses.

The modules are those of the graph of one device. What differs from a graph of its own: changes of
layout need the groups of their axes, a table of which a device has some rows gives zeros for the
others, a bias of summands is added by the first device, batches are normalised over the devices
that share them, and devices that have the same values drop the same ones.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from functools import partial
from math import prod
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional

from executor.devices.mesh import subgroup
from executor.model.batch_norm import BatchNorm
from executor.model.boxing import Axis, Change, Joined, cut, pieces
from executor.model.first_values import Values, seeded
from executor.model.graph.stage import GraphStage, key_of, last_read
from executor.model.graph.tokens import Table
from executor.model.loss import cross_entropy
from parsim.layout.candidates import inputs_on
from parsim.layout.laid import Laid
from parsim.layout.mesh import REPLICAS, NdSbp
from parsim.model.graph.losses import loss_nodes
from parsim.model.graph.record import INPUT, Node
from parsim.model.graph.texts import CrossEntropy, Dense, MeanLoss


class DeviceParts:
    """Where this device is on a mesh, and what it has of parameters, by their names in a model."""

    def __init__(self, laid: Laid, rank: int) -> None:
        self.laid, self.rank = laid, rank
        self.sizes = laid.mesh.sizes
        self.places = laid.mesh.coordinates(rank)
        self.layouts: dict[str, tuple[NdSbp, Joined]] = {}
        for number, layer in enumerate(laid.graph.layers):
            for node in layer:
                joined = {0: laid.joined.get(node.name, 1)} if _product(node) else {}
                for parameter, layout in laid.parameters(node):
                    name = f"layers.{number}.made.{key_of(node.name)}.{parameter.name}"
                    self.layouts[name] = layout, joined

    def layout(self, name: str) -> tuple[NdSbp, Joined]:
        """A parameter's layout; whole where nothing is said of it."""
        whole = tuple(signature for signature in self.laid.nothing)
        return self.layouts.get(name, (whole, {}))

    def values(self, seed: int) -> Values:
        """First values of this device's parts: those of the whole parameter, cut."""
        return partial(self._value, seeded(seed))

    def _value(self, whole: Values, name: str, shape: tuple[int, ...]) -> Tensor:
        layout, joined = self.layout(name)
        full = list(shape)
        for part, size in zip(layout, self.sizes, strict=True):
            if part.splits:
                full[part.dim] *= size
        return cut(whole(name, tuple(full)), layout, self.places, self.sizes, joined)

    def axes(self) -> tuple[Axis, ...]:
        """The groups of all axes; every rank asks for all."""
        return tuple(
            Axis(size, self.places[axis], self.group((axis,)))
            for axis, size in enumerate(self.sizes)
        )

    def group(self, axes: tuple[int, ...]) -> dist.ProcessGroup | None:
        """The ranks that differ from this one on some axes alone; every rank asks for all."""
        return subgroup(self.laid.mesh.groups(axes))


class LaidModel:
    """Runs a device's graph, forward to the losses."""

    def __init__(self, parts: DeviceParts, stage: GraphStage, seed: int = 0) -> None:
        """Fit the modules of a stage that was built from the graph of one device."""
        self.parts, self.laid = parts, parts.laid
        self.axes = parts.axes()
        self.made: Mapping[str, nn.Module] = {
            key: made for layer in stage.layers.values() for key, made in layer.made.items()
        }
        self.task = {node.name: number for number, node in enumerate(loss_nodes(self.laid.graph))}
        self.silent: set[nn.Parameter] = set()
        """Parameters that another device uses for this one: they get no gradient here."""
        for node in self.laid.graph.nodes:
            self._fit(node, self.made[key_of(node.name)], seed)
        for made in self.made.values():
            if isinstance(made, Change):
                made.axis = self.axes[made.step.axis]

    def _fit(self, node: Node, made: nn.Module, seed: int) -> None:
        way = self.laid.signatures[node.name]
        inside = tuple(a for a, s in enumerate(way) if s.inside and self.parts.sizes[a] > 1)
        summands = [a for a, s in enumerate(way) if s.output.kind == "P"]
        first = all(self.parts.places[axis] == 0 for axis in summands)
        if isinstance(made, BatchNorm) and inside:
            made.group = self.parts.group(inside)
        elif isinstance(made, Table):
            _replace(made, partial(_looked_up, made, self._index(node), first))
            if made.places is not None and not first:
                self.silent.add(made.places.weight)
        elif isinstance(made, nn.Linear | nn.Conv2d) and not first:
            _replace(made, partial(_without_bias, made))
            self.silent.update([] if made.bias is None else [made.bias])
        elif isinstance(made, nn.Dropout | nn.Dropout2d) and made.p:
            places = [self.parts.places[a] for a, s in enumerate(way) if s.output.splits]
            _replace(made, partial(_dropped, made, _generator(seed, node.name, places)))

    def _index(self, node: Node) -> int:
        """Which part of a table's rows this device has."""
        index = 0
        for axis, signature in enumerate(self.laid.signatures[node.name]):
            if signature.weight.splits and signature.weight.dim == 0:
                index = index * self.parts.sizes[axis] + self.parts.places[axis]
        return index

    def loss(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """This device's summand of the mean loss; its gradient's seed is `share`."""
        known, end = {INPUT: inputs}, self.laid.local.nodes[-1].name
        last = last_read(self.laid.local.nodes, (end,))
        for node in self.laid.local.nodes:
            given = [known[name] for name in node.inputs]
            if isinstance(node.operation, CrossEntropy):
                known[node.name] = self._loss(node, given[0], targets)
            elif isinstance(node.operation, MeanLoss):
                known[node.name] = torch.stack(given).mean()
            else:
                known[node.name] = self.made[key_of(node.name)](*given)
            given.clear()
            for name in last[node.name]:
                del known[name]
        return known[end]

    @property
    def share(self) -> float:
        """What each device's loss counts: all of a summand, its part of a copy."""
        last = self.laid.graph.nodes[-1].name
        sizes = zip(self.laid.layout(last), self.parts.sizes, strict=True)
        return 1.0 / prod(n for part, n in sizes if part.kind == "B")

    def _loss(self, node: Node, logits: Tensor, targets: Tensor) -> Tensor:
        """A summand of one task's loss: the mean of the samples that are here, by their share.

        Of a row that is split by vocabulary all devices know the loss, and each has the gradient of
        its columns: so each counts a part of the value, and all of the gradient.
        """
        way, task = self.laid.signatures[node.name], self.task[node.name]
        wanted = targets if logits.dim() > 2 else targets[:, task : task + 1]
        split, last = inputs_on(way, 0), logits.dim() - 1
        logits = logits if logits.dim() > 2 else logits.unsqueeze(1)
        samples = copies = 1
        columns = tuple(a for a, s in enumerate(way) if s.inside and self.parts.sizes[a] > 1)
        for axis, part in enumerate(split):
            if part.splits and axis not in columns and part.dim < last:
                samples *= self.parts.sizes[axis]
                if self.laid.mesh.names[axis] != REPLICAS:
                    index = self.parts.places[axis]
                    wanted = pieces(wanted, part.dim, self.parts.sizes[axis])[index]
        copies = prod(self.parts.sizes[axis] for axis in columns)
        group = self.parts.group(columns) if columns else None
        mean = cross_entropy(logits, wanted.contiguous(), group) / samples
        return mean + (mean / copies - mean).detach()


def _replace(made: nn.Module, forward: Callable[..., Tensor]) -> None:
    """Let a module compute otherwise, with the parameters that it has."""
    made.forward = forward


def _product(node: Node) -> bool:
    return isinstance(node.operation, Dense)


def _without_bias(made: Any, x: Tensor) -> Tensor:  # noqa: ANN401 - one of two modules
    """A product or convolution of summands, whose bias another device adds."""
    if isinstance(made, nn.Conv2d):
        return functional.conv2d(
            x, made.weight, None, made.stride, made.padding, made.dilation, made.groups
        )
    return functional.linear(x, made.weight)


def _looked_up(made: Table, index: int, first: bool, tokens: Tensor) -> Tensor:
    """Rows of the part of a table that is here; zeros for tokens of other parts."""
    rows = made.token.weight.shape[0]
    here = tokens - index * rows
    known = (here >= 0) & (here < rows)
    y: Tensor = functional.embedding(here.clamp(0, rows - 1), made.token.weight)
    y = y * known.unsqueeze(-1)
    return y if made.places is None or not first else y + made.places.weight[: tokens.shape[1]]


def _generator(seed: int, name: str, places: list[int]) -> torch.Generator:
    """Draws masks, the same ones on devices that have the same values."""
    text = f"{seed}:{name}:{places}".encode()
    number = int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")
    return torch.Generator().manual_seed(number >> 1)


def _dropped(made: Any, generator: torch.Generator, x: Tensor) -> Tensor:  # noqa: ANN401
    """Dropout with masks of a generator of its own."""
    if not made.training:
        return x
    shape = (*x.shape[:2], 1, 1) if isinstance(made, nn.Dropout2d) else x.shape
    kept = torch.rand(shape, generator=generator) >= made.p
    return x * kept / (1.0 - made.p)
