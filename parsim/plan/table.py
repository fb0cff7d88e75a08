"""Many plans as columns, so that costs are evaluated for all of them in one numpy call.

Every column has shape (B,), B plans. What plans share (precision, rank order, bucket size, the
overlap switches) is a scalar: a *setting*. Costs are of tables of one setting, a search holds
tables of several and takes the rows of each (`by_setting`). A single plan is a table with B = 1:
one code path prices one plan and a hundred thousand.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parsim.arrays import Flags, Index, Ints
from parsim.errors import PlanError
from parsim.plan.names import TWO_WAY, Recompute
from parsim.plan.precision import Precision, precision
from parsim.plan.record import Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanTable:
    """Columns of plans; `settings` hold the fields that rows share.

    `schedule` are numbers of names in `schedules`, `setting` of plans in `settings`.
    """

    tp: Ints
    pp: Ints
    dp_replicate: Ints
    dp_shard: Ints
    cp: Ints
    ep: Ints
    etp: Ints
    microbatch_size: Ints
    num_microbatches: Ints
    v: Ints
    zero_stage: Ints
    sequence_parallel: Flags
    recompute: Ints
    recompute_layers: Ints
    offload_layers: Ints
    schedule: Ints
    schedules: tuple[str, ...]
    setting: Ints
    settings: tuple[Plan, ...]

    @classmethod
    def of(cls, plans: Sequence[Plan]) -> PlanTable:
        """Gather plans that share all scalar fields.

        Raises:
            PlanError: no plans, or plans that differ in a field that has no column.
        """
        if not plans:
            raise PlanError("a plan table needs at least one plan")
        first = plans[0]
        columns = {name: np.array([getattr(plan, name) for plan in plans]) for name in COLUMNS}
        shared = [f.name for f in fields(Plan) if f.name not in (*COLUMNS, "schedule")]
        for plan in plans:
            for name in shared:
                if getattr(plan, name) != getattr(first, name):
                    raise PlanError(f"plans of one table must agree in {name}")
        names = tuple(dict.fromkeys(plan.schedule for plan in plans))
        schedule = np.array([names.index(plan.schedule) for plan in plans])
        return cls(
            **columns,
            schedule=schedule,
            schedules=names,
            setting=np.zeros(len(plans), dtype=np.int64),
            settings=(first,),
        )

    @classmethod
    def joined(cls, tables: Sequence[PlanTable]) -> PlanTable:
        """The rows of several tables, one table after another."""
        if len(tables) == 1:
            return tables[0]
        names = tuple(dict.fromkeys(name for table in tables for name in table.schedules))
        before = np.cumsum([0, *(len(table.settings) for table in tables)])
        numbered = [
            np.array([names.index(name) for name in table.schedules])[table.schedule]
            for table in tables
        ]
        setting = [table.setting + first for table, first in zip(tables, before, strict=False)]
        return cls(
            **{name: np.concatenate([getattr(t, name) for t in tables]) for name in COLUMNS},
            schedule=np.concatenate(numbered),
            schedules=names,
            setting=np.concatenate(setting),
            settings=tuple(plan for table in tables for plan in table.settings),
        )

    def appended(self, other: PlanTable) -> PlanTable:
        """These rows and those of another table with the same schedules and settings."""
        names = (*COLUMNS, "schedule", "setting")
        columns: dict[str, Any] = {
            name: np.append(getattr(self, name), getattr(other, name)) for name in names
        }
        return replace(self, **columns)

    def __len__(self) -> int:
        return len(self.tp)

    @property
    def common(self) -> Plan:
        """The fields that all rows share.

        Raises:
            RuntimeError: the table is of several settings, which are priced one by one.
        """
        if len(self.settings) != 1:
            raise RuntimeError("a table of several settings is priced setting by setting")
        return self.settings[0]

    def sharing(self, values: Mapping[str, Any]) -> PlanTable:
        """These plans with other values of fields that all rows share."""
        return replace(self, settings=tuple(replace(plan, **values) for plan in self.settings))

    def by_setting(self) -> Iterator[Index]:
        """The rows of each setting."""
        if len(self.settings) == 1:
            yield np.arange(len(self))
            return
        order = np.argsort(self.setting, kind="stable")
        ends = np.cumsum(np.bincount(self.setting, minlength=len(self.settings)))
        yield from (rows for rows in np.split(order, ends[:-1]) if len(rows))

    @property
    def dp(self) -> Ints:
        """Replicas per plan."""
        return self.dp_replicate * self.dp_shard

    @property
    def copies(self) -> Ints:
        """Copies of the model on the ranks of one pipeline: see `Plan.copies`."""
        named = np.array([name in TWO_WAY for name in self.schedules])
        return np.where((self.pp > 1) & named[self.schedule], 2, 1)

    @property
    def shards(self) -> Ints:
        """Ranks that ZeRO shares states out to: those of dp_shard and cp, 1 without ZeRO."""
        return np.where(self.zero_stage > 0, self.dp_shard * self.cp, 1)

    @property
    def expert_ranks(self) -> Ints:
        """Ranks that one layer's experts are divided over: ep x etp."""
        ranks: Ints = self.ep * self.etp
        return ranks

    @property
    def expert_replicas(self) -> Ints:
        """Ranks of a stage that hold the same part of the same experts, at least 1."""
        replicas: Ints = np.maximum(self.dp * self.cp * self.tp // self.expert_ranks, 1)
        return replicas

    @property
    def expert_shards(self) -> Ints:
        """Ranks that ZeRO shares experts' states out to: those that hold the same, 1 without."""
        replicas = np.maximum(self.expert_replicas // self.dp_replicate, 1)
        return np.where(self.zero_stage > 0, replicas, 1)

    @property
    def world_size(self) -> Ints:
        """Ranks per plan."""
        return self.pp * self.dp * self.cp * self.tp

    @property
    def precision(self) -> Precision:
        """Byte sizes shared by all rows."""
        return precision(self.settings[0].precision)

    @property
    def summed_bytes(self) -> float:
        """Bytes of a gradient's sum over micro-batches: 4 in fp32, else those of a parameter."""
        wide = self.common.gradient_precision == "fp32"
        return 4.0 if wide else float(self.precision.parameter)

    @property
    def sequence_split(self) -> Ints:
        """What divides tokens in the sequence region: tp with sequence parallelism, else 1."""
        return np.where(self.sequence_parallel, self.tp, 1)

    def on_rank(self, per_sample: float) -> NDArray[np.float64]:
        """Tokens or values of a micro-batch that a context-parallel rank has, of so many each."""
        return np.asarray(self.microbatch_size * per_sample / self.cp)

    def stride(self, axis: str) -> Ints:
        """Distance in ranks between neighbours along an axis, per plan."""
        order = self.common.rank_order
        stride = np.ones(len(self), dtype=np.int64)
        for name in order[order.index(axis) + 1 :]:
            stride = stride * getattr(self, name)
        return stride

    def take(self, rows: Index | Flags | slice) -> PlanTable:
        """The rows selected by an index, a mask array or a slice."""
        columns = {name: getattr(self, name) for name in (*COLUMNS, "schedule", "setting")}
        if isinstance(rows, slice):
            columns = {name: column[rows] for name, column in columns.items()}
        else:  # positions at once, and `take`: faster than a mask or an index for each column
            positions = np.flatnonzero(rows) if rows.dtype == bool else rows
            columns = {name: column.take(positions) for name, column in columns.items()}
        some = replace(self, **columns)
        if len(self.settings) == 1:
            return some
        occurs = np.bincount(some.setting, minlength=len(self.settings)) > 0
        numbers = (np.cumsum(occurs, dtype=np.int64) - 1)[some.setting]
        used = tuple(plan for plan, is_used in zip(self.settings, occurs, strict=True) if is_used)
        return replace(some, setting=numbers, settings=used)

    def plan(self, row: int) -> Plan:
        """One row as a Plan."""
        values = {name: getattr(self, name)[row].item() for name in COLUMNS}
        values["recompute"] = Recompute(values["recompute"])
        shared: Plan = self.settings[self.setting[row]]
        return replace(shared, **values, schedule=self.schedules[self.schedule[row]])


COLUMNS = tuple(
    f.name
    for f in fields(PlanTable)
    if f.name not in ("schedule", "schedules", "setting", "settings")
)
"""The fields of a plan that have a column of numbers."""
