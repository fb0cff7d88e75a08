"""Plans by families: a plan that saves no memory, and all that save some at the price of time.

    plain plan       tp4 pp8 zero1: nothing computed again, nothing on the host
    its savings      recompute       none  none  selective  full
                     modules               mlp
                     offload_layers  0     0     3          0

None of a family takes less time than its plain plan, so that a search bounds that one first: GPT-3
on 1,024 devices has 7.8 M plans in 0.6 M families. The plain plan itself may lie outside of the
space that is searched; only what is listed in the savings is a plan of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from parsim.arrays import Columns, Flags, Index, Ints
from parsim.plan import Plan, PlanTable
from parsim.plan.table import COLUMNS


@dataclass(frozen=True, slots=True, kw_only=True)
class Savings(Columns):
    """What the plans of a family do to need less memory, (M,) each, in a table's columns.

    `variant` says which of the settings of its family a plan has.
    """

    recompute: Ints
    recompute_layers: Ints
    offload_layers: Ints
    variant: Ints

    @classmethod
    def of(cls, rows: Sequence[tuple[int, int, int]]) -> Savings:
        """Savings of one setting: (recompute, recomputed layers, layers on the host) each."""
        columns = np.array(rows, dtype=np.int64).reshape(-1, 3).T
        recompute, again, moved = np.ascontiguousarray(columns)
        return cls(
            recompute=recompute,
            recompute_layers=again,
            offload_layers=moved,
            variant=np.zeros_like(recompute),
        )

    def __len__(self) -> int:
        return len(self.recompute)


@dataclass(frozen=True, slots=True, kw_only=True)
class Families:
    """F families: their plain plans, and which savings the plans of each have.

    `saving` (F,) is the number of a family's `savings`; `settings` are what plans share, of which
    those of a plain plan's setting begin at `begin`, one for each variant. Their length is the
    number of all plans.
    """

    plain: PlanTable
    saving: Index
    savings: tuple[Savings, ...]
    settings: tuple[Plan, ...]
    begin: Index

    @classmethod
    def alone(cls, table: PlanTable) -> Families:
        """Plans as families of one each."""
        columns = {name: getattr(table, name) for name in SAVED}
        rows = np.arange(len(table))
        every = Savings(**columns, variant=np.zeros_like(rows))
        return cls(
            plain=table,
            saving=rows,
            savings=tuple(every.take(rows[row : row + 1]) for row in rows.tolist()),
            settings=table.settings,
            begin=np.arange(len(table.settings)),
        )

    @classmethod
    def joined(cls, pieces: Sequence[Families]) -> Families:
        """The families of several pieces, one piece behind another."""
        kinds = np.cumsum([0, *(len(piece.savings) for piece in pieces)])
        shared = np.cumsum([0, *(len(piece.settings) for piece in pieces)])
        numbered = list(zip(pieces, kinds, shared, strict=False))
        return cls(
            plain=PlanTable.joined([piece.plain for piece in pieces]),
            saving=np.concatenate([piece.saving + before for piece, before, _ in numbered]),
            savings=tuple(saving for piece in pieces for saving in piece.savings),
            settings=tuple(setting for piece in pieces for setting in piece.settings),
            begin=np.concatenate([piece.begin + before for piece, _, before in numbered]),
        )

    def __len__(self) -> int:
        return int(self.sizes.sum())

    @property
    def sizes(self) -> Ints:
        """How many plans each family has, (F,)."""
        return np.array([len(each) for each in self.savings], dtype=np.int64)[self.saving]

    def take(self, some: Flags) -> Families:
        """Some of the families, of one setting."""
        return replace(self, plain=self.plain.take(some), saving=self.saving[some])

    def sharing(self, values: Mapping[str, Any]) -> Families:
        """These plans with other values of fields that all of them share."""
        settings = tuple(replace(plan, **values) for plan in self.settings)
        return replace(self, plain=self.plain.sharing(values), settings=settings)

    def with_variants(
        self, settings: Sequence[Plan], differs: Sequence[Callable[[PlanTable], Flags]]
    ) -> Families:
        """These plans of one setting in each of several, where `differs` calls them other plans."""
        return replace(
            self,
            savings=tuple(self._variants(each, differs) for each in self.savings),
            settings=tuple(settings),
        )

    def _variants(
        self, savings: Savings, differs: Sequence[Callable[[PlanTable], Flags]]
    ) -> Savings:
        table = self._saving(self.plain.take(np.zeros(len(savings), dtype=np.int64)), savings)
        kept = [np.flatnonzero(other(table)) for other in differs]
        variants = [np.full(len(rows), number) for number, rows in enumerate(kept)]
        chosen = savings.take(np.concatenate(kept))
        return replace(chosen, variant=np.concatenate(variants))

    def table(self, rows: Index | None = None) -> PlanTable:
        """All plans of some families, family by family; of all of them where none are named."""
        rows = np.arange(len(self.saving)) if rows is None else rows
        each = np.array([len(savings) for savings in self.savings], dtype=np.int64)
        kinds = self.saving[rows]
        sizes, begin = each[kinds], (np.cumsum(each) - each)[kinds]
        before = np.cumsum(sizes) - sizes
        which = np.arange(sizes.sum()) + np.repeat(begin - before, sizes)
        return self._saving(self._repeated(rows, sizes), Savings.joined(self.savings).take(which))

    def _repeated(self, rows: Index, times: Ints) -> PlanTable:
        """Plain plans so many times each."""
        names = [name for name in (*COLUMNS, "schedule", "setting") if name not in SAVED]
        columns: dict[str, Any] = {
            name: np.repeat(getattr(self.plain, name)[rows], times) for name in names
        }
        return replace(self.plain, **columns)

    def _saving(self, plain: PlanTable, savings: Savings) -> PlanTable:
        """Plain plans with the savings of memory that stand beside them, row by row."""
        columns = {name: getattr(savings, name) for name in SAVED}
        setting = self.begin[plain.setting] + savings.variant
        return replace(plain, **columns, setting=setting, settings=self.settings)


SAVED = tuple(f.name for f in fields(Savings) if f.name != "variant")
"""Columns of a table in which the plans of a family differ."""
