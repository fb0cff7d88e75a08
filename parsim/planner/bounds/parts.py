"""Which few stages and ranks of a plan a bound looks at, because all others are like them.

Most stages of a pipeline hold the same layers: eight ranks with three chunks each of a GPT have
four kinds of stage, and of their ranks three can be the last to end or the fullest:

    stages   first (embedding) | every kind of inner stage | last (head)
    ranks    0: its gradients are complete last, most micro-batches are in flight there
             the last of those with the most layers
             the last one: most stages lie before it, and it has the head
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from parsim.arrays import Array, Columns, Flags, Ints, Num
from parsim.cost.job import Job
from parsim.cost.step.stages import layer_counts, plan_cut
from parsim.plan import Plan, PlanTable
from parsim.plan.names import TWO_WAY
from parsim.schedule.placement import stage_ranks


@dataclass(frozen=True, slots=True, kw_only=True)
class TellingParts(Columns):
    """R stages and Q ranks that stand for those of C plans.

    `counts` (R, K, C) are a stage's layers of each kind, `every` (R, C) how many such stages there
    are; `on_rank` and `ahead` (Q, R, C) how many such stages a rank holds, and how many lie before
    its first one, of both copies where a pipeline runs both ways. `rank` (Q, C) are the ranks'
    numbers and `early` the first ranks that hold the same. `looped` says that stage s is on rank
    s % pp, `both` that a pipeline runs both ways, `by_user` that a schedule of the user's puts
    stages anywhere.
    """

    counts: Array
    every: Array
    on_rank: Array
    ahead: Array
    rank: Ints
    early: Ints
    looped: Flags
    both: Flags
    by_user: bool

    @classmethod
    def of(cls, job: Job, table: PlanTable, folded: Flags, known: KnownCuts) -> TellingParts:
        """Find a table's stages and ranks; `folded` (C,) plans run down the ranks and back up."""
        cuts = [_known_cut(job, table, row, folded, known) for row in range(len(folded))]
        kinds = max(len(cut.counts) for cut in cuts)
        padded = [cut.padded(kinds) for cut in cuts]
        stacked = {
            name: np.stack([getattr(cut, name) for cut in padded], axis=-1)
            for name in ("counts", "every", "on_rank", "ahead", "rank", "early")
        }
        by_user, both = table.common.actions is not None, table.copies > 1
        looped = ~folded & ~both & (not by_user)
        return cls(**stacked, looped=looped, both=both, by_user=by_user)

    def sums(self, stages: Array) -> Array:
        """What a rank's stages have together, of what each of them has: (R, C) to (Q, C)."""
        return np.asarray(np.einsum("qrc,rc->qc", self.on_rank, stages))

    def sums_ahead(self, stages: Array) -> Array:
        """What the stages before a rank's first one have together, (R, C) to (Q, C)."""
        return np.asarray(np.einsum("qrc,rc->qc", self.ahead, stages))

    def least(self, stages: Array) -> Array:
        """The least of a rank's stages, (R, C) to (Q, C)."""
        return np.asarray(np.where(self.on_rank > 0, stages, np.inf).min(axis=1))


def over(sums: Callable[[Array], Array], stages: Num) -> Num:
    """What stages have together; 0.0 where no plan has any."""
    return sums(stages) if isinstance(stages, np.ndarray) else stages


def _placed(plan: Plan, folded: bool) -> Plan:
    """A plan with a schedule that places stages as its own does."""
    if plan.actions is not None or plan.copies > 1:
        return plan
    return replace(plan, schedule="hanayo" if folded else "interleaved_1f1b")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cut:
    """`TellingParts` of one plan, without the last axis."""

    counts: Array
    every: Array
    on_rank: Array
    ahead: Array
    rank: Ints
    early: Ints

    @classmethod
    def of(cls, job: Job, plan: Plan) -> _Cut:
        counts = layer_counts(job.model, plan_cut(plan, job.model.num_layers))
        rank_of = np.array(stage_ranks(plan))
        place_of = np.arange(len(rank_of)) % len(counts)
        rows, row_of = _kinds_of_stage(counts)
        each = np.eye(len(rows))[row_of]  # (S, R): which stage is of which kind
        places = [place_of[rank_of == rank] for rank in range(rank_of.max() + 1)]
        on_rank = np.stack([each[stages].sum(axis=0) for stages in places])
        ahead = np.stack([each[: stages.min()].sum(axis=0) for stages in places])
        chosen = _telling_ranks(on_rank @ rows.sum(axis=1))
        early = [int(np.argmax((on_rank == on_rank[rank]).all(axis=1))) for rank in chosen]
        return cls(
            counts=rows,
            every=each.sum(axis=0),
            on_rank=on_rank[chosen],
            ahead=ahead[chosen],
            rank=np.array(chosen),
            early=np.array(early),
        )

    def padded(self, kinds: int) -> _Cut:
        """This cut with as many kinds of stage as others have: the new ones stand for none."""
        more = kinds - len(self.counts)
        if not more:
            return self
        counts = np.insert(self.counts, [1] * more, self.counts[0], axis=0)
        every, on_rank, ahead = (
            np.insert(each, [1] * more, 0.0, axis=-1)
            for each in (self.every, self.on_rank, self.ahead)
        )
        return replace(self, counts=counts, every=every, on_rank=on_rank, ahead=ahead)


KnownCuts = dict[tuple[object, ...], _Cut]
"""Cuts of a job's plans by what decides them: settings of a space share most of them."""


def _known_cut(job: Job, table: PlanTable, row: int, folded: Flags, known: KnownCuts) -> _Cut:
    """The cut of a row, of those that are known where it is one of them."""
    common, schedule = table.common, table.schedules[table.schedule[row]]
    both_ways = schedule if schedule in TWO_WAY else ""
    shape = (int(table.pp[row]), int(table.v[row]), bool(folded[row]), both_ways)
    decisive = (*shape, common.stage_layers, common.actions)
    if decisive not in known:
        known[decisive] = _Cut.of(job, _placed(table.plan(row), bool(folded[row])))
    return known[decisive]


def _kinds_of_stage(counts: Array) -> tuple[Array, Sequence[int]]:
    """The distinct stages, the first and the last apart, and which of them each stage is."""
    if len(counts) == 1:
        return counts, [0]
    inner, which = np.unique(counts[1:-1], axis=0, return_inverse=True)
    rows = np.concatenate([counts[:1], inner, counts[-1:]])
    return rows, [0, *(1 + which.reshape(-1)).tolist(), len(rows) - 1]


def _telling_ranks(layers: Array) -> list[int]:
    """The first rank, the last with the most layers, the last one; of a single rank that one."""
    if len(layers) == 1:
        return [0]
    heaviest = len(layers) - 1 - int(np.argmax(layers[::-1]))
    return [0, heaviest, len(layers) - 1]
