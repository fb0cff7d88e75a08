"""Plans with the parts of their costs, each distinct one priced once, and bytes before seconds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from parsim.arrays import Array, Flags, Index, Ints
from parsim.cost.job import Job
from parsim.cost.step.layer_table import LayerTable
from parsim.plan import PlanTable
from parsim.planner.bounds.closed_forms import ROUNDING, ClosedForms, Seconds
from parsim.planner.bounds.halves import Halves
from parsim.planner.bounds.kept import Kept, Standing
from parsim.planner.bounds.parts import KnownCuts, TellingParts
from parsim.planner.bounds.schedules import Flights, Kinds, Runs
from parsim.planner.bounds.tail import Tail
from parsim.planner.bounds.work import Work
from parsim.planner.distinct import Cases
from parsim.sim.memory.fresh_gradients import makes_gradients

CHUNK = 1 << 13
"""Plans that are put together at once: their columns stay in cache."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Priced:
    """B plans with equally many ranks that stand for all, and the parts of their costs.

    `rows` (B,) are those of a `table`, whose schedules are of some `kinds`, and `both` says which
    of its plans run both ways. `works` are plans with each distinct work of a micro-batch, `layers`
    and `parts` what these consist of; `flights` each distinct number of micro-batches in flight on
    the ranks of a work, `work_in` their works; `tail` and `standing` what comes behind and what
    stays. `flight_of` and `tail_of` (B,) say which of these a plan has.
    """

    job: Job
    table: PlanTable
    kinds: Kinds
    both: Flags
    rows: Index
    works: PlanTable
    layers: LayerTable
    parts: TellingParts
    flights: Flights
    work_in: Index
    flight_of: Index
    tail: Tail
    standing: Standing
    tail_of: Index

    @classmethod
    def of(
        cls, job: Job, table: PlanTable, layers: LayerTable, layer_row: Index, known: KnownCuts
    ) -> Priced:
        """Find each distinct part of the plans' costs.

        `layer_row` (B,) are the plans' rows in `layers`; those of one row have equal degrees and
        equally many micro-batches of one size.
        """
        kinds, both = Kinds.of(table), table.copies > 1
        folded = kinds.folded[table.schedule]
        cuts = Cases.among(table.pp, table.v, folded, both)
        parts = TellingParts.of(job, table.take(cuts.first), folded[cuts.first], known)
        works = Cases.among(layer_row, cuts.of, table.recompute_layers)
        flights = Cases.among(works.of, table.schedule)
        shared = (table.tp, table.cp, table.ep, table.dp_replicate, table.dp_shard)
        tails = Cases.among(cuts.of, *shared, table.zero_stage, makes_gradients(job, table))
        flying = parts.early.take(cuts.of[flights.first], axis=-1)
        reducing, reduced = table.take(tails.first), parts.take(cuts.of[tails.first])
        return cls(
            job=job,
            table=table,
            kinds=kinds,
            both=both,
            rows=np.arange(len(table)),
            works=table.take(works.first),
            layers=layers.take(layer_row[works.first]),
            parts=parts.take(cuts.of[works.first]),
            flights=Flights.of(table.take(flights.first), flying),
            work_in=works.of[flights.first],
            flight_of=flights.of,
            tail=Tail.of(job, reducing, reduced),
            standing=Standing.of(job, reducing, reduced),
            tail_of=tails.of,
        )

    @property
    def work_of(self) -> Index:
        """Which of the works each plan has, (B,)."""
        return self.work_in[self.flight_of]

    def take(self, some: Index) -> Priced:
        """Some of the plans."""
        return replace(
            self,
            rows=self.rows[some],
            flight_of=self.flight_of[some],
            tail_of=self.tail_of[some],
        )

    def repeating(self, layers: Ints) -> Priced:
        """These plans with so many recomputed layers of each stage, (B,)."""
        flights = Cases.among(self.flight_of, layers)
        before, repeated = self.flight_of[flights.first], layers[flights.first]
        works = Cases.among(self.work_in[before], repeated)
        old = self.work_in[before[works.first]]
        return replace(
            self,
            works=replace(self.works.take(old), recompute_layers=repeated[works.first]),
            layers=self.layers.take(old),
            parts=self.parts.take(old),
            flights=self.flights.take(before),
            work_in=works.of,
            flight_of=flights.of,
        )

    def standing_bytes(self) -> Array:
        """Bytes that stay for the whole run on the fullest rank at the least, (B,)."""
        stays = (self.standing.fixed + self.standing.gradients).max(axis=0)
        return np.asarray(stays[self.tail_of] * (1.0 - ROUNDING))

    def peaks(self) -> Array:
        """Bytes of the fullest rank at the least, (B,).

        Those of a moment that every schedule of the kind has: the last stage's first backward, or
        its end, when all gradients are made.
        """
        kept = Kept.of(self.job, self.works, self.layers, self.parts).take(self.work_in)
        filling, beside = kept.in_flight(self.flights)
        peak, stays = np.empty(len(self.rows)), self.standing
        for rows in _chunks(len(self.rows)):
            flights, tails = self.flight_of[rows], self.tail_of[rows]
            gradients = stays.gradients.take(tails, axis=-1)
            begin = filling.take(flights, axis=-1) + beside.take(flights, axis=-1)
            begin += gradients * stays.bucketed[tails]
            end = gradients + kept.lasting.take(flights, axis=-1)
            bytes_of = stays.fixed.take(tails, axis=-1) + np.maximum(begin, end)
            peak[rows] = bytes_of.max(axis=0) * (1.0 - ROUNDING)
        return peak

    def steps(self) -> Seconds:
        """Seconds of a step and its parts at the least, (B,)."""
        columns = np.empty((len(Seconds._fields), len(self.rows)))
        split = self.kinds.split[self.table.schedule[self.rows]]
        for in_two in (False, True):
            rows = np.flatnonzero(split == in_two)
            if len(rows):
                plans = self if len(rows) == len(split) else self.take(rows)
                columns[:, rows] = plans._steps(in_two)
        return Seconds(*columns)

    def _steps(self, in_two: bool) -> Array:
        """Columns of `Seconds` of plans with backwards in two, or of those without."""
        works = Cases.among(self.work_of)
        some = self.work_of[works.first]
        table, layers, parts = self.works.take(some), self.layers.take(some), self.parts.take(some)
        work = Work.of(self.job, table, layers, parts)
        halves = Halves.of(self.job, table, layers, parts) if in_two else None
        runs = Runs.of(self.table, self.kinds, self.both, self.rows)
        columns = np.empty((len(Seconds._fields), len(self.rows)))
        for rows in _chunks(len(self.rows)):
            forms = ClosedForms(
                runs=runs.take(rows),
                work=work.take(works.of[rows]),
                halves=halves and halves.take(works.of[rows]),
                tail=self.tail.take(self.tail_of[rows]),
                common=self.table.common,
                overlap=self.job.software.overlap,
            )
            for column, values in zip(columns, forms.step(), strict=True):
                column[rows] = values
        return columns


def _chunks(plans: int) -> Iterator[slice]:
    """So many plans, chunk by chunk."""
    for begin in range(0, plans, CHUNK):
        yield slice(begin, begin + CHUNK)
