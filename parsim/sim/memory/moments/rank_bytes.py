"""What lives on a pipeline rank of eager PyTorch at a moment of its step, bytes by category."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from parsim.arrays import Array, Flags
from parsim.cost.data.static_bytes import static_bytes
from parsim.cost.job import Job
from parsim.cost.step.costs import StepCosts
from parsim.plan import PlanTable
from parsim.schedule import Schedule
from parsim.sim.memory.eager_kept import StageBytes, in_buckets, reduce_bytes
from parsim.sim.memory.in_flight import guest_bytes
from parsim.sim.memory.moments.borders import Borders
from parsim.sim.memory.moments.buffers import Buffers
from parsim.sim.memory.moments.pipeline import Moment
from parsim.sim.memory.moments.weights import WeightPass


@dataclass(frozen=True, slots=True, kw_only=True)
class RankBytes:
    """Bytes that a rank's moments are counted in; of its chunks (chunks, B), else (B,).

    `travelling` is what gradients need beside them while they are reduced, `guests` other ranks'
    activations. At most `limit` micro-batches of a chunk are here at once.
    """

    stages: StageBytes
    borders: Borders
    buffers: Buffers
    weights: WeightPass
    gradients: Array
    travelling: Array
    bucketed: Flags
    guests: Array
    workspace: float
    limit: float

    @classmethod
    def of(
        cls,
        job: Job,
        table: PlanTable,
        costs: StepCosts,
        schedule: Schedule,
        rank: int,
        all_stages: StageBytes,
        all_weights: WeightPass,
        buffers: Buffers,
    ) -> RankBytes:
        """Take a rank's chunks out of the bytes of all stages."""
        chunks = list(schedule.stages_on(rank))
        stages = all_stages.of(chunks)
        borders = Borders.of(schedule, all_stages.sent, chunks)
        gradients, travelling = _gradients(job, table, costs, chunks)
        if not stages.with_blocks.any():
            buffers = replace(buffers, gathered=buffers.gathered_at_loss)
        return cls(
            stages=stages,
            borders=borders,
            buffers=buffers,
            weights=WeightPass(*(values[chunks] for values in all_weights)),
            gradients=gradients,
            travelling=travelling,
            bucketed=in_buckets(job, table),
            guests=guest_bytes(all_stages.kept, schedule)[rank],
            workspace=job.software.workspace,
            limit=np.inf if schedule.limit is None else float(schedule.limit),
        )

    def in_flight(self, moment: Moment) -> Array:
        """Micro-batches of each chunk whose activations are here, (chunks,)."""
        return np.minimum(np.array(moment.in_flight, dtype=np.float64), self.limit)

    def at(self, moment: Moment) -> dict[str, Array]:
        """Bytes by category, (B,) each, beside parameters and the optimizer's states."""
        standing, in_flight = self.buffers.at(moment), self.in_flight(moment)
        with_gradients = np.array(moment.with_gradients, dtype=np.float64)
        made = with_gradients @ self.gradients
        gradients = np.where(self.bucketed, self.gradients.sum(axis=0), made)
        kept = in_flight @ self.stages.kept
        return {
            "gradients": gradients + standing.gradients,
            "activations": kept + self.guests - standing.gone,
            "logits": standing.logits,
            "temporary": standing.temporary + self._beside(moment),
            "communication": self._messages(moment, in_flight),
            "gathered": standing.gathered,
        }

    def _beside(self, moment: Moment) -> Array:
        """Workspaces, what waits for its W and what that makes, what moves to and from the host."""
        waiting = np.array(moment.waiting, dtype=np.float64) @ self.stages.waiting
        if moment.ending >= 0:
            waiting = waiting + self.stages.released[moment.ending]
        if moment.what in ("weights", "first_weights"):
            first = moment.what == "first_weights"
            waiting = waiting + self.weights.above(first=first, bucketed=self.bucketed)
        moved = self.buffers.on_their_way * self.stages.with_blocks.any()
        return np.asarray(waiting + moved + self.workspace)

    def _messages(self, moment: Moment, in_flight: Array) -> Array:
        """Gradients that are reduced, messages that pass, outputs that were sent on."""
        reduced = np.array(moment.reduced) @ self.travelling
        return np.asarray(reduced + self.borders.passing + in_flight @ self.borders.outputs)


def _gradients(
    job: Job, table: PlanTable, costs: StepCosts, chunks: list[int]
) -> tuple[Array, Array]:
    """Gradients of the chunks, and what they need beside them while they are reduced."""
    trained = costs.updated.by(lambda stages: stages[chunks])
    _, gradients, _ = static_bytes(job, table, trained)
    routed = trained.experts
    share = 0.0 if routed is None else routed / np.maximum(trained.parameters, 1.0)
    shared = reduce_bytes(job, table, gradients * (1.0 - share), table.shards)
    expert = reduce_bytes(job, table, gradients * share, table.expert_shards)
    return gradients, shared + expert
