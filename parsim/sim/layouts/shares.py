"""What a device has of a model that is laid out: of its parameters, of what is kept, of logits."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import prod

from parsim.cost.layer.kept.graph_backward import backward_beyond
from parsim.layout.boxing import share
from parsim.layout.candidates import inputs_on
from parsim.layout.laid import Laid
from parsim.layout.sbp import local_shape, parts_of
from parsim.model.graph.build import operators_of
from parsim.model.graph.losses import loss_nodes
from parsim.model.graph.record import Node
from parsim.plan import PlanTable
from parsim.sim.layouts.prices import NodePrices


@dataclass(frozen=True, kw_only=True)
class Shares:
    """Shares of a whole model with so many `samples`, those of one device by itself."""

    laid: Laid
    prices: NodePrices
    samples: int

    @cached_property
    def parameters(self) -> float:
        """A device's parameters over all."""
        local = whole = 0.0
        for node in self.laid.graph.nodes:
            for parameter, layout in self.laid.parameters(node):
                local += parameter.values * share(layout, self.laid.mesh.sizes)
                whole += parameter.values
        return local / max(whole, 1.0)

    @property
    def kept(self) -> float:
        """What the operations of a device keep, as its graph has them, over the whole model's."""
        owner, whole = self.laid.owners, operators_of(self.laid.graph).values()
        local = sum(
            self.prices.kept(tuple(part), self._samples(owner[name]))
            for name, part in operators_of(self.laid.local).items()
        )
        every = sum(self.prices.kept(tuple(part), self.samples) for part in whole)
        return local / max(every, 1.0)

    @property
    def beyond(self) -> float:
        """Bytes that a device's backward needs at its highest moment beyond what is kept."""
        job = self.prices.evaluation.step.job

        def table_of(name: str) -> tuple[PlanTable, int]:
            samples = self._samples(self.laid.owners[name])
            return self.prices.table(samples), samples

        return backward_beyond(self.laid.local, job.software, table_of)

    def _samples(self, node: str) -> int:
        return self.prices.samples // self.laid.batch_parts(node)

    @property
    def logits(self) -> float:
        """A device's logits over those of its own samples."""
        pairs = [self._logits(node) for node in loss_nodes(self.laid.graph)]
        return sum(local for local, _ in pairs) / max(sum(whole for _, whole in pairs), 1)

    def _logits(self, node: Node) -> tuple[int, int]:
        """Logits of a loss on a device, and of its own samples."""
        shape, sizes = self.laid.graph.shapes[node.inputs[0]], self.laid.mesh.sizes
        read = inputs_on(self.laid.signatures[node.name], 0)
        samples = self.prices.samples // parts_of(read, 0, sizes)
        return prod(local_shape(shape, read, sizes)) * samples, prod(shape) * self.samples
