"""What ranks of a pipeline whose stages differ, or that never flushes, agree on: order and groups.

stage 0, 2 replicas of tp 2   | 0 1 | 2 3 |     sharers 0 2 and 1 3, tensor 0 1 and 2 3
stage 1, 1 replica of tp 2    | 4 5 |           ends of a tied table 0 2 4 and 1 3 5
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

from executor.devices.mesh import subgroup
from parsim.schedule.replicas import Rows, StageReplicas
from parsim.schedule.versions import Versions


@dataclass(frozen=True, slots=True)
class StageGroups:
    """The ranks that this one exchanges something with beside messages; None where it is alone.

    `sharers` hold the same part of the same stage, `tensor` the other parts of it, `ends` the same
    part of the first or the last stage.
    """

    sharers: dist.ProcessGroup | None
    ends: dist.ProcessGroup | None
    tensor: dist.ProcessGroup | None
    mesh: DeviceMesh | None

    @classmethod
    def of(cls, replicas: StageReplicas) -> StageGroups:
        """Build them; to be called on all ranks at once."""
        parts = [_by_part(replicas, (stage,)) for stage in range(replicas.stages)]
        ends = _by_part(replicas, (0, replicas.stages - 1))
        wide = [list(replicas.devices(row)) for row in range(replicas.num_ranks)]
        tensor = subgroup([ranks for ranks in wide if len(ranks) > 1])
        return cls(
            sharers=subgroup([ranks for stage in parts for ranks in stage]),
            ends=subgroup(ends),
            tensor=tensor,
            mesh=None if tensor is None else DeviceMesh.from_group(tensor, "cpu"),
        )


def _by_part(replicas: StageReplicas, stages: Sequence[int]) -> list[list[int]]:
    """The devices of some stages that hold the same part, where these have equally many parts."""
    rows = sorted({row for stage in stages for row in replicas.ranks(stage)})
    devices = [replicas.devices(row) for row in rows]
    fewest = min(map(len, devices))
    return [[each[part] for each in devices] for part in range(fewest)]


Weights = list[torch.Tensor]
Update = Callable[[Weights, Weights], None]
"""Turns weights into the next ones in place, with a gradient."""

MicroBatches = Callable[[int], tuple[torch.Tensor, torch.Tensor]]
"""The input and the target of a micro-batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageOrder:
    """What every rank must agree on: replicas, forwards at the start, and when weights change.

    Without `versions` the pipeline flushes, and may have rows of `actions` that are not 1F1B's.
    """

    replicas: StageReplicas
    warmups: tuple[int, ...]
    versions: Versions | None = None
    actions: Rows | None = None

    def rows(self, microbatches: int) -> Rows:
        """The actions of each replica."""
        return self.actions or self.replicas.rows(microbatches, self.warmups)

    @classmethod
    def of(cls, versions: Versions) -> StageOrder:
        """The order of a pipeline that never flushes."""
        return cls(replicas=versions.replicas, warmups=versions.warmups, versions=versions)

    def used(self, stage: int, microbatch: int) -> int:
        """The version of a micro-batch."""
        return self.versions.used(stage, microbatch) if self.versions else 0

    def updates(self, stage: int, microbatches: int) -> int:
        """Updates that a stage takes in a step of so many micro-batches."""
        if self.versions is None:
            return 1
        return microbatches // (self.versions.batch * self.replicas.counts[stage])

    def lateness(self, stage: int) -> int:
        """Rounds of a stage's replicas whose sums are under way while these go on."""
        return self.versions.lateness(stage) if self.versions else 0

    def made(self, stage: int, microbatch: int) -> int | None:
        """The version made behind a micro-batch's backward, if one is."""
        return self.versions.made(stage, microbatch) if self.versions else None

    def updates_behind(self, stage: int, microbatch: int) -> bool:
        """Whether a version has all its gradients with those of a micro-batch."""
        last = (microbatch + 1) % self.replicas.counts[stage] == 0
        return last and self.made(stage, microbatch) is not None
