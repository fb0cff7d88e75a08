"""Plans with the parts of their costs, each distinct one priced once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from parsim.arrays import Array, Index, Ints
from parsim.cost.job import Job
from parsim.cost.step.layer_table import LayerTable
from parsim.plan import PlanTable
from parsim.planner.bounds.cases import Cases
from parsim.planner.bounds.closed_forms import ClosedForms, Kinds, Seconds
from parsim.planner.bounds.parts import KnownCuts, Parts
from parsim.planner.bounds.tail import Tail
from parsim.planner.bounds.work import Work

CHUNK = 1 << 13
"""Plans that are put together at once: their columns stay in cache."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Priced:
    """B plans with equally many ranks that stand for all, and the parts of their costs.

    `work_of` and `tail_of` (B,) are the rows of each plan in `work` and `tail`; `layers` and
    `parts` are those that each row of `work` was priced from.
    """

    job: Job
    table: PlanTable
    kinds: Kinds
    layers: LayerTable
    parts: Parts
    work: Work
    work_of: Index
    tail: Tail
    tail_of: Index

    @classmethod
    def of(
        cls, job: Job, table: PlanTable, layers: LayerTable, layer_row: Index, known: KnownCuts
    ) -> Priced:
        """Price each distinct part of the plans' costs once."""
        kinds = Kinds.of(table)
        cuts = Cases.among(table.pp, table.v, kinds.folded, kinds.both)
        parts = Parts.of(job, table.take(cuts.first), kinds.folded[cuts.first], known)
        works = Cases.among(layer_row, cuts.of, table.recompute_layers)
        shared = (table.tp, table.cp, table.ep, table.dp_replicate, table.dp_shard)
        tails = Cases.among(cuts.of, *shared, table.zero_stage)
        working, reducing = (parts.take(cuts.of[cases.first]) for cases in (works, tails))
        priced = layers.take(layer_row[works.first])
        return cls(
            job=job,
            table=table,
            kinds=kinds,
            layers=priced,
            parts=working,
            work=Work.of(job, table.take(works.first), priced, working),
            work_of=works.of,
            tail=Tail.of(job, table.take(tails.first), reducing),
            tail_of=tails.of,
        )

    def take(self, rows: Index) -> Priced:
        """Some of the plans."""
        return replace(
            self,
            table=self.table.take(rows),
            kinds=Kinds(*(column[rows] for column in self.kinds)),
            work_of=self.work_of[rows],
            tail_of=self.tail_of[rows],
        )

    def repeating(self, layers: Ints) -> Priced:
        """These plans with so many recomputed layers of each stage, (B,)."""
        table = replace(self.table, recompute_layers=layers)
        works = Cases.among(self.work_of, layers)
        before = self.work_of[works.first]
        priced, parts = self.layers.take(before), self.parts.take(before)
        return replace(
            self,
            table=table,
            layers=priced,
            parts=parts,
            work=Work.of(self.job, table.take(works.first), priced, parts),
            work_of=works.of,
        )

    def bounds(self) -> tuple[Seconds, Array]:
        """Seconds of a step and its parts, and bytes of its fullest rank, at the least, (B,)."""
        columns, peak = np.empty((4, len(self.table))), np.empty(len(self.table))
        for rows, some in self._chunks():
            for column, values in zip(columns, some.step(), strict=True):
                column[rows] = values
            peak[rows] = some.peak()
        return Seconds(*columns), peak

    def peaks(self) -> Array:
        """Bytes of the fullest rank at the least, (B,)."""
        peak = np.empty(len(self.table))
        for rows, some in self._chunks():
            peak[rows] = some.peak()
        return peak

    def _chunks(self) -> Iterator[tuple[slice, ClosedForms]]:
        """The plans chunk by chunk."""
        for begin in range(0, len(self.table), CHUNK):
            rows = slice(begin, begin + CHUNK)
            yield (
                rows,
                ClosedForms(
                    table=self.table.take(rows),
                    kinds=Kinds(*(column[rows] for column in self.kinds)),
                    work=self.work.take(self.work_of[rows]),
                    early=self.parts.early.take(self.work_of[rows], axis=-1),
                    tail=self.tail.take(self.tail_of[rows]),
                    overlap=self.job.software.overlap,
                ),
            )
