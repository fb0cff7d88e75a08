"""What the schedules of a table of plans are: what of them the closed forms look at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from parsim.arrays import Columns, Flags, Index, Ints
from parsim.plan import PlanTable
from parsim.plan.schedule_names import FOLDED, SPLIT, V_SHAPED, WHOLE


class Kinds(NamedTuple):
    """A flag for each name of a table's schedules, of plans with one rank or all with several.

    A user's schedule is of no kind; without a pipeline it is 1F1B.
    """

    whole: Flags
    split: Flags
    naive: Flags
    folded: Flags
    completes_either: Flags

    @classmethod
    def of(cls, table: PlanTable) -> Kinds:
        """Sort the schedules of a table."""
        by_user, single = table.common.actions is not None, bool(table.pp[0] == 1)
        named = [
            (name in WHOLE, name in SPLIT, name == "naive", name in FOLDED, name in V_SHAPED)
            for name in table.schedules
        ]
        whole, split, naive, folded, either = np.array(named).T & (not by_user)
        split, naive, folded = (flags & (not single) for flags in (split, naive, folded))
        return cls(whole | single, split, naive, folded, either | by_user)


@dataclass(frozen=True, slots=True, kw_only=True)
class Runs(Columns):
    """How B plans run: `count` (B,) micro-batches of each copy of the model, their schedule's kind.

    `replicated` says that gradients are whole on each replica: a ZeRO stage below 2.
    """

    count: Ints
    whole: Flags
    naive: Flags
    completes_either: Flags
    replicated: Flags

    @classmethod
    def of(cls, table: PlanTable, kinds: Kinds, both: Flags, rows: Index) -> Runs:
        """Some rows of a table; `both` (B,) says that a plan's pipeline runs both ways."""
        schedule, both = table.schedule[rows], both[rows]
        return cls(
            count=table.num_microbatches[rows] >> both,
            whole=kinds.whole[schedule],
            naive=kinds.naive[schedule],
            completes_either=kinds.completes_either[schedule] | both,
            replicated=table.zero_stage[rows] < 2,
        )
