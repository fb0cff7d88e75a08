"""Messages between stages that differ in replicas and in tensor-parallel ranks.

Between stages of different tp each receiving rank j gets the whole border from the sending rank
j mod t: a rank of the narrower stage sends one copy for each of the wider one's it serves, one
behind the other.

    tp 1 -> tp 2    forward   rank 0 -> 0, rank 0 -> 1      backward   rank 0 -> 0
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from parsim.arrays import Array
from parsim.cluster.hardware import System
from parsim.cost.collective.collectives import p2p_time
from parsim.cost.collective.group_bandwidth import messages_spine
from parsim.cost.collective.mesh_messages import least_share
from parsim.cost.job import Job
from parsim.cost.step.messages import hop_bytes
from parsim.cost.step.stages import stage_borders
from parsim.cost.step.step import stage_cut
from parsim.plan import PlanTable
from parsim.schedule.replicas import StageReplicas


@dataclass(frozen=True, slots=True)
class StageMessages:
    """Where the ranks of each stage lie, between which messages travel."""

    system: System
    replicas: StageReplicas
    degrees: tuple[int, ...]

    def seconds(self, job: Job, table: PlanTable, *, ahead: bool = True) -> Array:
        """Seconds of a message behind each stage but the last, or of one back there, (p - 1,)."""
        borders = stage_borders(job.model, stage_cut(job, table))[:-1]
        sizes = [hop_bytes(table, values) for values in borders]
        return np.array([self._behind(*each, ahead=ahead) for each in enumerate(sizes)])

    def _behind(self, stage: int, size: Array, *, ahead: bool) -> float:
        """Seconds of one between a stage and the next, whose tensor ranks may be more or fewer."""
        sends, gets = (self._devices(each) for each in (stage, stage + 1))
        nodes = {device // self.system.devices_per_node for device in (*sends, *gets)}
        degrees = self.degrees[stage : stage + 2]
        sender, receiver = degrees if ahead else degrees[::-1]
        together = min(self.replicas.counts[stage : stage + 2]) * min(degrees)
        lasted = p2p_time(
            self.system,
            size * -(-receiver // sender),
            crosses=len(nodes) > 1,
            sharing=float(min(together, self.system.devices_per_node)),
            spine=messages_spine(self.system, sends, gets),
            share=least_share(self.system, sends, gets),
        )
        return float(lasted[0])

    def _devices(self, stage: int) -> list[int]:
        """All devices of a stage's replicas."""
        ranks = self.replicas.ranks(stage)
        return [device for rank in ranks for device in self.replicas.devices(rank)]
