"""A schedule as data: the ordered actions of every pipeline rank, and its CSV.

A schedule knows no seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TYPE_CHECKING

from parsim.errors import ScheduleError
from parsim.schedule.actions import Action, Kind, Move, guests_of, moves_of, require_positive
from parsim.schedule.rows_csv import read_rows, write_rows
from parsim.schedule.staircase import staircase

if TYPE_CHECKING:
    from parsim.arrays import Array, Index


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """The ordered actions of each pipeline rank.

    `ranks[r]` is what pipeline rank r runs, in order; `stage_rank[s]` is the rank that holds
    stage s. Nothing is checked here: see `parsim.schedule.check`. `cells` is only for messages: in
    a schedule read from CSV, the cell of each action in its rank's line, from 1.

    `copies` of the model may lie on the ranks, as in schedules that run both ways: the stages of
    the first copy come first, and each copy takes an equal share of the micro-batches, in order.

    With a `limit` a rank keeps no more micro-batches of its own, what is beyond them lies on rank
    pp-1-rank, and no rank holds more in all (`families/bpipe.py`).
    """

    name: str
    ranks: tuple[tuple[Action, ...], ...]
    stage_rank: tuple[int, ...]
    num_microbatches: int
    copies: int = 1
    limit: int | None = None
    cells: tuple[tuple[int, ...], ...] = field(default=(), compare=False)

    def __repr__(self) -> str:
        size = f"{self.pp} ranks, {self.num_stages} stages, {self.num_microbatches} micro-batches"
        return f"<Schedule {self.name}: {size}>"

    @property
    def pp(self) -> int:
        """Number of pipeline ranks."""
        return len(self.ranks)

    @property
    def num_stages(self) -> int:
        """Number of stages over all ranks."""
        return len(self.stage_rank)

    @property
    def depth(self) -> int:
        """Number of stages that a micro-batch goes through: those of one copy of the model."""
        return self.num_stages // self.copies

    @property
    def v(self) -> int:
        """Chunks (stages of one copy on one rank), the largest over the ranks."""
        first = self.stage_rank[: self.depth]
        return max(first.count(rank) for rank in range(self.pp))

    def in_copies(self, stages: Array) -> Array:
        """What the stages of one copy have, (depth, ...), for those of all copies."""
        import numpy as np

        return stages if self.copies == 1 else np.concatenate([stages] * self.copies)

    def is_first(self, stage: int) -> bool:
        """True where a stage's input is the batch: nothing comes before it in its copy."""
        return stage % self.depth == 0

    def is_last(self, stage: int) -> bool:
        """True where a stage computes the loss: nothing comes behind it in its copy."""
        return stage % self.depth == self.depth - 1

    def microbatches_of(self, stage: int) -> range:
        """The micro-batches that go through a stage: all, or the share of its copy."""
        copy, m = stage // self.depth, self.num_microbatches
        return range(copy * m // self.copies, (copy + 1) * m // self.copies)

    @property
    def moves(self) -> Mapping[Action, Move]:
        """Activations that leave for the rank's partner and come back, by the action beside it."""
        if self.limit is None:
            return {}
        return moves_of(self.pp, self.num_microbatches, self.limit)

    @property
    def guests(self) -> tuple[int, ...]:
        """The most micro-batches of its partner's stage that each rank holds."""
        if self.limit is None:
            return (0,) * self.pp
        return guests_of(self.pp, self.num_microbatches, self.limit)

    @property
    def is_compute_only(self) -> bool:
        """True before lowering: no rank holds anything but F, B, I and W."""
        return all(a.kind <= Kind.W for row in self.ranks for a in row)

    @property
    def has_messages(self) -> bool:
        """True if any rank holds a SEND or RECV; else results cross ranks without being named."""
        return any(Kind.W < a.kind < Kind.UNSHARD for row in self.ranks for a in row)

    def stages_on(self, rank: int) -> tuple[int, ...]:
        """The stages that a rank holds, ascending: its chunks 0, 1, ..."""
        return tuple(stage for stage, held_by in enumerate(self.stage_rank) if held_by == rank)

    def compute_only(self) -> Schedule:
        """This schedule without SEND, RECV, UNSHARD, RESHARD and REDUCE_GRAD."""
        if self.is_compute_only:
            return self
        ranks = tuple(tuple(a for a in row if a.kind <= Kind.W) for row in self.ranks)
        return replace(self, ranks=ranks, cells=())

    def where(self, rank: int, index: int | None = None) -> str:
        """What messages call a rank's row, or its action at `index`: `my.csv:2, cell 5`."""
        if not self.cells:
            return self.name
        line = f"{self.name}:{rank + 1}"
        return line if index is None else f"{line}, cell {self.cells[rank][index]}"

    def cited(self, *actions: Action) -> str:
        """Where actions stand in the file, to end a message with: ` (1F0: line 2, cell 5)`."""
        if not self.cells:
            return ""
        ranked = [(a, self.stage_rank[a.stage]) for a in actions]
        written = [(a, r, self.ranks[r].index(a)) for a, r in ranked if a in self.ranks[r]]
        cited = [f"{a}: line {r + 1}, cell {self.cells[r][index]}" for a, r, index in written]
        return f" ({'; '.join(cited)})" if cited else ""

    def table(self) -> Index:
        """All actions as rows (stage, kind, microbatch), rank after rank, shape (A, 3)."""
        import numpy as np

        count = 3 * sum(map(len, self.ranks))
        flat = chain.from_iterable(chain.from_iterable(self.ranks))
        return np.fromiter(flat, dtype=np.int64, count=count).reshape(-1, 3)

    @classmethod
    def one_stage_each(
        cls, name: str, pp: int, num_microbatches: int, row: Callable[[int], Sequence[Action]]
    ) -> Schedule:
        """A schedule with stage r on rank r, which runs `row(r)`.

        Raises:
            ScheduleError: a size is below 1.
        """
        require_positive(pp=pp, num_microbatches=num_microbatches)
        ranks = range(pp)
        rows = tuple(tuple(row(rank)) for rank in ranks)
        return cls(name=name, ranks=rows, stage_rank=(*ranks,), num_microbatches=num_microbatches)

    @classmethod
    def from_ranks(cls, ranks: Iterable[Iterable[Action]], *, name: str) -> Schedule:
        """Build a schedule from its rows, inferring the placement and the micro-batch count.

        Raises:
            ScheduleError: a rank has no action, or a stage is on no rank or on two, or the
                micro-batches have a gap.
        """
        rows = tuple(tuple(row) for row in ranks)
        return cls(
            name=name,
            ranks=rows,
            stage_rank=_placement(rows, name),
            num_microbatches=_microbatches(rows, name),
        )

    def to_csv(self) -> str:
        """The schedule as PyTorch's CSV: one row per rank, one cell per action."""
        return write_rows(self.ranks)

    @classmethod
    def from_csv(cls, text: str, *, name: str = "csv") -> Schedule:
        """Read PyTorch's CSV, a line per rank; empty cells (idle steps) are skipped.

        Raises:
            ScheduleError: a cell is no action, a rank has none, or a stage is on no rank or two.
        """
        rows = read_rows(text, name)
        schedule = cls.from_ranks((row.values() for row in rows), name=name)
        return replace(schedule, cells=tuple(map(tuple, rows)))

    def staircase(self) -> str:
        """The compute actions by time step, each one slot long; dots are idle slots.

        Raises:
            DeadlockError: the order of the actions never lets some rank go on.
        """
        beside = {action: str(move) for action, move in self.moves.items()}
        return staircase(self.ranks, self.depth, self.name, beside)


def _placement(rows: Sequence[Sequence[Action]], name: str) -> tuple[int, ...]:
    """Which rank has each stage, from the actions of all ranks."""
    rank_of: dict[int, int] = {}
    for rank, row in enumerate(rows):
        if not any(action.microbatch >= 0 for action in row):
            raise ScheduleError(f"{name}: rank {rank} has no action on a micro-batch")
        for stage in sorted({action.stage for action in row}):
            if rank_of.setdefault(stage, rank) != rank:
                raise ScheduleError(
                    f"{name}: stage {stage} is on ranks {rank_of[stage]} and {rank}; "
                    "a stage belongs to one rank"
                )
    if not rank_of:
        raise ScheduleError(f"{name}: no actions; expected one row of actions per pipeline rank")
    for stage in range(len(rank_of)):
        if stage not in rank_of:
            raise ScheduleError(
                f"{name}: stage {stage} is on no rank, but stage {max(rank_of)} is; "
                "stages must be numbered 0, 1, 2, ... without a gap"
            )
    return tuple(rank_of[stage] for stage in range(len(rank_of)))


def _microbatches(rows: Sequence[Sequence[Action]], name: str) -> int:
    """How many there are; a gap is told here, before anything as long as the highest is made."""
    seen = {action.microbatch for action in chain(*rows)} - {-1}
    missing = next((mb for mb in range(len(seen)) if mb not in seen), None)
    if missing is not None:
        raise ScheduleError(
            f"{name}: microbatch {missing} is in no action, but microbatch {max(seen)} is; "
            "microbatches must be numbered 0, 1, 2, ... without a gap"
        )
    return len(seen)
