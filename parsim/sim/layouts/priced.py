"""A model laid out on a mesh: the strategy's program with its seconds and bytes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod

import numpy as np

from parsim.arrays import Array
from parsim.cost.collective.kinds import wire_share
from parsim.cost.data.buckets import mean_bucket, reduced_bytes
from parsim.cost.job import Job
from parsim.errors import PlanError
from parsim.layout.candidates import Options
from parsim.layout.laid import Laid
from parsim.layout.mesh import Mesh
from parsim.layout.names import options_of
from parsim.model.graph.record import Graph
from parsim.plan import Plan, PlanTable
from parsim.plan.strategies import DDP, Layout, of_kind
from parsim.sim.layouts.choose import Chosen, choose, layout_document, layout_notes
from parsim.sim.layouts.exchanges import Exchanges, MeshExchange
from parsim.sim.layouts.pieces import Pieces, Shares, pieces_of
from parsim.sim.layouts.prices import NodePrices
from parsim.sim.memory.categories import STATIC
from parsim.sim.recurrence.evaluate import Evaluation, evaluate
from parsim.sim.shared_model import added_squares, shared_update
from parsim.strategy.layout import (
    BACKWARD,
    EXCHANGE,
    FORWARD,
    NORM,
    REDUCE,
    UPDATE,
    LayoutPart,
    layout,
)
from parsim.strategy.program import StepProgram


@dataclass(frozen=True)
class LaidOut:
    """A plan whose workers hold a model by a layout, and the evaluated plan of whole models."""

    evaluation: Evaluation
    plan: Plan

    @property
    def strategy(self) -> Layout:
        """The plan's strategy, with its options."""
        return of_kind(self.plan.strategy, Layout)

    @cached_property
    def mesh(self) -> Mesh:
        """The mesh with its replicas."""
        return Mesh(self.strategy.mesh).repeated(self.plan.dp // self.strategy.sharers)

    @property
    def graph(self) -> Graph:
        """What the model was built from.

        Raises:
            PlanError: it was not built from a graph.
        """
        graph = self.evaluation.step.job.model.graph
        if graph is None:
            raise PlanError(f"{self.evaluation.step.job.model.name} has no graph of operations")
        return graph

    @property
    def samples(self) -> int:
        """Samples of a micro-batch on all devices together."""
        return self.plan.microbatch_size * self.plan.dp

    @cached_property
    def prices(self) -> NodePrices:
        """Seconds of operations and exchanges."""
        step = self.evaluation.step
        exchanges = Exchanges(
            system=step.job.system,
            graph=self.graph,
            mesh=self.mesh,
            samples=self.samples,
            value=float(step.pricing.table.precision.activation),
            gradient=float(reduced_bytes(PlanTable.of([self.plan]))),
        )
        return NodePrices(
            evaluation=self.evaluation,
            graph=self.graph,
            mesh=self.mesh,
            exchanges=exchanges,
            samples=self.samples,
        )

    @cached_property
    def chosen(self) -> Chosen:
        """The signatures of all operations: as stated, the rest the cheapest."""
        options = Options(self.graph, self.mesh)
        return choose(options_of(options, self.strategy.names, self.strategy.stated), self.prices)

    @cached_property
    def laid(self) -> Laid:
        """The graph on its mesh."""
        return Laid(
            graph=self.graph,
            mesh=self.mesh,
            signatures=self.chosen.signatures,
            changes=self.chosen.changes,
        )

    @cached_property
    def pieces(self) -> Pieces:
        """What a device does in a micro-batch."""
        plan = self.plan
        bucket = float(mean_bucket(self.evaluation.step.job, PlanTable.of([plan]))[0])
        return pieces_of(self.laid, self.prices, bucket=bucket, beside=plan.overlap_grad_reduce)

    def program(self, passes: int) -> StepProgram:
        """The tasks of all devices; one pass for many micro-batches stands for all but the last."""
        mesh, parts, lumped = self.mesh, self.pieces.parts, self._lumped(passes)
        roles = tuple(
            " ".join(
                f"{name} {index}"
                for name, index in zip(mesh.names, mesh.coordinates(rank), strict=True)
            )
            for rank in range(mesh.ranks)
        )
        return layout(
            parts,
            ranks=mesh.ranks,
            microbatches=2 if lumped else passes,
            roles=roles,
            last=[self._of_the_last(part) for part in parts] if lumped else (),
        )

    def _lumped(self, passes: int) -> bool:
        """Whether a pass stands for several micro-batches: gradients are summed beside the last."""
        return passes < self.plan.num_microbatches

    def _of_the_last(self, part: LayoutPart) -> LayoutPart:
        """A part of the last micro-batch, whose prices stand behind those of all before it."""
        if part.price == REDUCE:
            return part
        return replace(part, row=part.row + len(self.pieces.prices(part.price)))

    def _before_and_last(self, each: Array, passes: int) -> Array:
        """Prices of each micro-batch; lumped, those of all but the last and of the last."""
        if not self._lumped(passes):
            return each
        return np.concatenate([(self.plan.num_microbatches - 1) * each, each])

    def seconds(self, passes: int) -> dict[str, Array]:
        """Seconds by the names of the program, of so many passes a step."""
        shares = self.shares.parameters
        added = added_squares(self.evaluation, self.plan.dp) * (shares < 1.0)
        return {
            **{
                name: self._before_and_last(self.pieces.prices(name), passes)
                for name in (FORWARD, BACKWARD, EXCHANGE)
            },
            REDUCE: self.pieces.prices(REDUCE),
            NORM: np.atleast_1d(self.evaluation.step.costs.norm[0] + added),
            UPDATE: np.atleast_1d(shared_update(self.evaluation, np.asarray(shares))),
        }

    def carried(self, passes: int) -> dict[str, Array]:
        """Bytes of each collective by the names of the program."""
        return {
            EXCHANGE: self._before_and_last(self.pieces.sizes(EXCHANGE), passes),
            REDUCE: self.pieces.sizes(REDUCE),
        }

    @property
    def sent(self) -> float:
        """Bytes that a device sends a step."""
        times = {EXCHANGE: self.plan.num_microbatches, REDUCE: 1}
        return sum(
            (
                times[name] * exchange.size * self._sent(exchange)
                for name, exchanges in self.pieces.exchanges.items()
                for exchange in exchanges
            ),
            0.0,
        )

    def _sent(self, exchange: MeshExchange) -> float:
        ranks = prod(self.mesh.sizes[axis] for axis in exchange.axes)
        return float(wire_share(exchange.kind, np.array(float(ranks))))

    @cached_property
    def compute(self) -> tuple[float, float]:
        """Seconds of a device's forwards and backwards in a step."""
        count = self.plan.num_microbatches
        ahead, back = (float(self.pieces.prices(name).sum()) for name in (FORWARD, BACKWARD))
        return ahead * count, back * count

    @cached_property
    def shares(self) -> Shares:
        """What a device has of the model."""
        return Shares(laid=self.laid, prices=self.prices, samples=self.plan.microbatch_size)

    def device_bytes(self, whole: Mapping[str, float]) -> dict[str, dict[str, float]]:
        """What a device holds: its parts, and what is temporary where it has samples of its own."""
        beside = evaluate(self.evaluation.step.job, replace(self.plan, strategy=DDP))
        equal = next(iter(beside.memory.values())).at(0, 0)
        shares = dict.fromkeys(STATIC, self.shares.parameters)
        shares |= {"activations": self.shares.kept, "logits": self.shares.logits}
        device = {name: equal[name] * shares.get(name, 1.0) for name in whole}
        summed = float(self.pieces.sizes(REDUCE).sum())
        device["communication"] = min(equal["communication"], summed)
        software = self.evaluation.step.job.software
        if software.eager:
            device["temporary"] = self.shares.beyond + software.workspace
        return {"device": device}

    def limits(self, step: float) -> str:
        """What holds the step back, in words."""
        count = self.plan.num_microbatches
        exchanged = float(self.pieces.prices(EXCHANGE).sum()) * count
        compute = sum(self.compute)
        if compute > 0.8 * step:
            return "compute"
        rest = max(step - compute - exchanged, 0.0)
        if exchanged >= rest:
            return f"changes of layout, {100 * exchanged / step:.0f} % of the step"
        return (
            f"gradients, norm and update behind the passes, {100 * rest / step:.0f} % of the step"
        )

    def notes(self) -> Iterator[str]:
        """The layout in short, and how far it may be from the best."""
        return layout_notes(self.laid, self.chosen)

    def to_json(self) -> dict[str, object]:
        """The signature of every operation, the changes between, the cost and its bound."""
        return layout_document(self.laid, self.chosen)


def laid_out(job: Job, plan: Plan) -> Laid:
    """How a plan's model is laid out; to run it so."""
    return LaidOut(evaluate(job, plan.whole_models, memory=False), plan).laid
