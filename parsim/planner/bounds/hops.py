"""Messages that a micro-batch passes on its way to each rank that bounds look at, and back."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from parsim.arrays import Array, Columns, Flags, Ints
from parsim.cluster.placement import hop_crosses
from parsim.cost.job import Job
from parsim.plan import PlanTable
from parsim.planner.bounds.parts import TellingParts
from parsim.planner.distinct import Cases


@dataclass(frozen=True, slots=True, kw_only=True)
class Hops(Columns):
    """Messages of Q ranks in all and those of them that leave a node, (2, Q, C) each.

    `ahead` of the first micro-batch on its way to a rank, `back` of the last gradient on its way
    from it to rank 0, `blocked` that keep the rank from computing in each micro-batch. `across`
    (C,) says whether the first and the last rank are on two nodes, `apart` (C,) whether all
    neighbouring ranks are.
    """

    ahead: Array
    back: Array
    blocked: Array
    across: Flags
    apart: Flags

    @classmethod
    def of(cls, job: Job, table: PlanTable, parts: TellingParts) -> Hops:
        """Count them for a table whose plans have `parts`."""
        stride, world = table.stride("pp"), table.world_size
        cases = Cases.among(stride, world, table.pp, table.v, parts.looped, parts.both)
        counted = [
            _counted_hops(job, table, parts, int(row), int(stride[row]), int(world[row]))
            for row in cases.first
        ]
        *hops_of, leaving = (np.stack(each, axis=-1) for each in zip(*counted, strict=True))
        ahead, back, blocked = hops_of
        apart = leaving == np.maximum(table.pp[cases.first] - 1, 1)
        hops = cls(ahead=ahead, back=back, blocked=blocked, across=leaving > 0, apart=apart)
        return hops.take(cases.of)


def _counted_hops(
    job: Job, table: PlanTable, parts: TellingParts, row: int, stride: int, world: int
) -> tuple[Array, Array, Array, Array]:
    """Count the messages of a row; a single rank and a schedule of the user's own have none."""
    pp, ranks = int(table.pp[row]), parts.rank[:, row]
    if pp == 1 or parts.by_user:
        nothing = np.zeros((2, len(ranks)))
        return nothing, nothing, nothing, np.zeros(())
    crosses = hop_crosses(
        stride=stride, pp=pp, devices_per_node=job.system.devices_per_node, world_size=world
    )
    return _hops(
        pp,
        int(table.v[row]),
        tuple(ranks.tolist()),
        tuple(crosses),
        bool(parts.looped[row]),
        bool(parts.both[row]),
        not table.common.overlap_p2p,
    )


@lru_cache(maxsize=8192)
def _hops(
    pp: int,
    v: int,
    ranks: tuple[int, ...],
    crosses: tuple[bool, ...],
    looped: bool,
    both: bool,
    blocking: bool,
) -> tuple[Array, Array, Array, Array]:
    """(ahead, back, blocked) of one plan: how many messages, and how many of them leave a node.

    Last, how many nodes lie between the first and the last rank. `crosses` says of each pair of
    neighbouring ranks whether they are on two nodes.
    """
    at = np.array(ranks)
    links = np.stack([np.ones(pp - 1), np.array(crosses, dtype=np.float64)])
    before = np.concatenate([np.zeros((2, 1)), np.cumsum(links, axis=1)], axis=1)
    beside = np.zeros((2, pp))
    beside[:, :-1] += links
    beside[:, 1:] += links
    if both:
        ahead = _nearest_end(before, at, 0)
        back = _nearest_end(before, at, int(blocking))
        return ahead, back, 2 * beside[:, at] * blocking, before[1, -1]
    around = (v - 1) * looped * links.max(axis=1)
    used = v * beside
    used[:, 0] += around
    used[:, -1] += around
    back = before[:, np.maximum(at - 1, 0)] if blocking else before[:, at]
    return before[:, at], back, used[:, at] * blocking, before[1, -1]


def _nearest_end(before: Array, ranks: Ints, less: int) -> Array:
    """Messages between ranks and the nearer end of the pipeline, `less` of them, (2, Q).

    Of those inside a node and of those that leave one each the fewer of both ways, so that no way
    takes less time.
    """
    last = before.shape[1] - 1
    down = before[:, np.maximum(ranks - less, 0)]
    up = before[:, -1:] - before[:, np.minimum(ranks + less, last)]
    leaving = np.minimum(down[1], up[1])
    return np.stack([np.minimum(down[0] - down[1], up[0] - up[1]) + leaving, leaving])
