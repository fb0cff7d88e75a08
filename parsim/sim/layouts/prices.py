"""Seconds of the operations of a graph on a mesh: the kernels of each device's part.

    an operation    its part's kernels raced against their launches
    a pass          all kernels raced against all launches, times what the whole model takes on one
                    device over the race of its operations there; operations share it in proportion

so that a model that no axis splits takes, and holds, what one device does.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from typing import NamedTuple

from parsim.cost.layer.kept.graph_backward import kept_bytes
from parsim.cost.layer.layers import LayerCoster
from parsim.cost.layer.passes import LayerCost, Pass
from parsim.cost.step.stage_passes import raced
from parsim.layout.candidates import OnMesh, inputs_on, output_on
from parsim.layout.laid import Laid
from parsim.layout.mesh import Mesh, local_shape, parts_of
from parsim.layout.signatures import local_operation
from parsim.model.graph.build import operators_of
from parsim.model.graph.operation import OperationContext
from parsim.model.graph.record import Graph, Node
from parsim.model.layer import Layer
from parsim.model.operators import Operator
from parsim.plan import PlanTable
from parsim.sim.layouts.exchanges import Exchanges
from parsim.sim.recurrence.evaluate import Evaluation

Operators = tuple[Operator, ...]


class NodePasses(NamedTuple):
    """Forward and backward of an operation's part: kernels with launches, and seconds alone."""

    forward: Pass
    backward: Pass
    ahead: float
    back: float


@dataclass(frozen=True, kw_only=True)
class NodePrices:
    """Prices of a graph's operations on a mesh, from the evaluated plan of whole models.

    `samples` are those of a pass of all devices together.
    """

    evaluation: Evaluation
    graph: Graph
    mesh: Mesh
    exchanges: Exchanges
    samples: int
    _passes: dict[tuple[Operators, int], NodePasses] = field(default_factory=dict)
    _tables: dict[int, PlanTable] = field(default_factory=dict)
    _seconds: dict[tuple[object, ...], float] = field(default_factory=dict)

    def passes(self, operators: Operators, samples: int) -> NodePasses:
        """What so many samples take through some operators."""
        key = (operators, samples)
        if key not in self._passes:
            cost = self._cost(operators, samples)
            seconds = (self.raced(part) for part in (cost.forward, cost.backward))
            self._passes[key] = NodePasses(cost.forward, cost.backward, *seconds)
        return self._passes[key]

    def raced(self, part: Pass) -> float:
        """Seconds of a pass: its kernels against their launches."""
        step = self.evaluation.step
        return float(raced(step.job, step.pricing.layers(0), part)[0])

    def _cost(self, operators: Operators, samples: int) -> LayerCost:
        table = self.table(samples)
        if not operators:
            return LayerCost.zero(len(table))
        return LayerCoster(self.evaluation.step.job, table).cost(_layer(operators))

    def table(self, samples: int) -> PlanTable:
        """The plan of whole models with micro-batches of so many samples."""
        if samples not in self._tables:
            plan = replace(self.evaluation.step.plan, microbatch_size=samples)
            self._tables[samples] = PlanTable.of([plan])
        return self._tables[samples]

    def operators(self, node: Node, way: OnMesh) -> Operators:
        """The operators of one device's part of an operation, nothing kept."""
        sizes = self.mesh.sizes
        at = OperationContext(
            inputs=tuple(
                local_shape(self.graph.shapes[name], inputs_on(way, number), sizes)
                for number, name in enumerate(node.inputs)
            ),
            output=local_shape(self.graph.shapes[node.name], output_on(way), sizes),
            kept=0,
            asks=any(name in self.exchanges.asked for name in node.inputs),
        )
        return local_operation(node.operation, way, sizes).operators(at)

    def seconds(self, node: Node, way: OnMesh) -> float:
        """An operation's passes, the exchanges inside it, and the sum of its gradients.

        Operations of one kind and size between tensors of one size cost alike.
        """
        shapes = tuple(self.graph.shapes[name] for name in node.inputs)
        asks = any(name in self.exchanges.asked for name in node.inputs)
        key = (node.operation, shapes, asks, way)
        if key not in self._seconds:
            self._seconds[key] = self._priced(node, way)
        return self._seconds[key]

    def _priced(self, node: Node, way: OnMesh) -> float:
        shared = parts_of(inputs_on(way, 0), 0, self.mesh.sizes)
        passes = self.passes(self.operators(node, way), self.samples // shared)
        inside = (exchange for part in self.exchanges.inside(node, way) for exchange in part)
        laid = Laid(graph=self.graph, mesh=self.mesh, signatures={node.name: way}, changes={})
        sums = (self.exchanges.reduce(*entry) for entry in laid.reduced(node).items())
        return passes.ahead + passes.back + sum(e.seconds for e in (*inside, *sums))

    @cached_property
    def factors(self) -> tuple[float, float]:
        """What a model takes on one device over what its operations do: forward, backward."""
        plan, costs = self.evaluation.step.plan, self.evaluation.step.costs
        whole = operators_of(self.graph).values()
        every = [self.passes(tuple(part), plan.microbatch_size) for part in whole]
        ahead, back = self.totals(every)
        lasting = float(costs.forward[0, 0]), float(costs.backward[0, 0])
        return (lasting[0] - self.between) / ahead, (lasting[1] - self.between) / back

    @property
    def between(self) -> float:
        """Seconds of a forward, and of a backward, in which the device waits for the host."""
        return float(self.evaluation.step.pricing.layers(0).pause[0])

    def totals(self, passes: Iterable[NodePasses]) -> tuple[float, float]:
        """Seconds of passes one behind the other, forward and backward."""
        every = list(passes)
        ahead = reduce(Pass.plus, (part.forward for part in every))
        back = reduce(Pass.plus, (part.backward for part in every))
        return self.raced(ahead), self.raced(back)

    def kept(self, operators: Operators, samples: int) -> float:
        """Bytes that operators keep of so many samples."""
        return kept_bytes(operators, self.table(samples), self.evaluation.step.job.software)


def _layer(operators: Operators) -> Layer:
    return Layer(name="part", parts=operators, inputs=1, outputs=1)
