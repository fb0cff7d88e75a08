"""1F1B over stages that have numbers of replicas of their own: who runs which micro-batch, when.

Micro-batch M runs on replica M mod r of a stage with r replicas, forward and backward on the same
one. Two stages with 2 and 1 replicas, four micro-batches:

    stage 0 replica 0 | 0F0 0F2 ... 0B0 ... ... 0B2
    stage 0 replica 1 | 0F1 0F3 ... ... ... 0B1 ... ... 0B3
    stage 1           | ... 1F0 1B0 1F1 1B1 1F2 1B2 1F3 1B3

A replica of stage s begins with w_s forwards before it takes them in turn with backwards:

    w_s = floor((r_s + r_{s+1} + ... + r_{p-1} - 1) / r_s)

which is 1F1B's p - 1 - s where all have one replica. Each stage then feeds all that wait behind it,
so that no order of this kind hangs; where forwards are long behind stages with many replicas, more
of them keep the slowest stage busy (`plan/stages.py` says what stages ahead then need).

`read` takes rows in another order, such as one that was searched for (`orders/search.py`).

Source: PipeDream (SOSP 2019), section 3.2, deterministic round-robin; its runtime's warm-up.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from parsim.errors import ScheduleError
from parsim.plan.stages import least_warmups
from parsim.schedule.actions import Action, Kind
from parsim.schedule.families.one_f_one_b import one_f_one_b_row
from parsim.schedule.rows_csv import read_rows

Rows = tuple[tuple[Action, ...], ...]
"""The actions of each rank in order."""


@dataclass(frozen=True, slots=True)
class StageReplicas:
    """How many replicas each stage has, (p,); ranks are numbered stage by stage.

    A rank is a replica: `tensor` devices of each stage's (none: one each) that follow each other.
    """

    counts: tuple[int, ...]
    tensor: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        """Refuse what is no pipeline.

        Raises:
            ScheduleError: no stage, or one without replicas.
        """
        if not self.counts or min(self.counts) < 1:
            raise ScheduleError(
                f"replicas of stages {list(self.counts)}; each stage has at least one"
            )

    @property
    def stages(self) -> int:
        """How many stages there are, p."""
        return len(self.counts)

    @property
    def widths(self) -> tuple[int, ...]:
        """The devices of each rank."""
        tensor = self.tensor or (1,) * self.stages
        return tuple(tensor[stage] for stage in self.stage_of)

    def devices(self, rank: int) -> range:
        """The devices of a rank."""
        first = sum(self.widths[:rank])
        return range(first, first + self.widths[rank])

    @property
    def rank_of(self) -> tuple[int, ...]:
        """The rank that each device is of."""
        return tuple(rank for rank, width in enumerate(self.widths) for _ in range(width))

    @property
    def num_ranks(self) -> int:
        """All replicas of all stages."""
        return sum(self.counts)

    @property
    def stage_of(self) -> tuple[int, ...]:
        """The stage of each rank."""
        return tuple(stage for stage, count in enumerate(self.counts) for _ in range(count))

    def ranks(self, stage: int) -> tuple[int, ...]:
        """The ranks of a stage."""
        first = sum(self.counts[:stage])
        return tuple(range(first, first + self.counts[stage]))

    def rank(self, stage: int, microbatch: int) -> int:
        """The rank that runs a micro-batch of a stage."""
        return self.ranks(stage)[microbatch % self.counts[stage]]

    @property
    def warmups(self) -> tuple[int, ...]:
        """Forwards of each stage's replicas before their first backward, at least."""
        return least_warmups(self.counts)

    def rows(self, num_microbatches: int, warmups: Sequence[int] | None = None) -> Rows:
        """The actions of each rank in order; `warmups` where they are more than they must be.

        Raises:
            ScheduleError: the replicas of a stage cannot share the micro-batches evenly, or fewer
                forwards than a stage must begin with.
        """
        self.check_shares(num_microbatches)
        deep = tuple(warmups or self.warmups)
        needed = least_warmups(self.counts, deep)
        if any(given < least for given, least in zip(deep, needed, strict=True)):
            raise ScheduleError(
                f"warm-ups {list(deep)}: stages begin with at least {list(needed)} forwards"
            )
        return tuple(
            tuple(self._row(rank, num_microbatches, deep)) for rank in range(self.num_ranks)
        )

    def read(self, text: str, num_microbatches: int, name: str = "csv") -> Rows:
        """The rows of a CSV with a line per rank, whole backwards in any order that ends.

        Raises:
            ScheduleError: they are of other ranks or micro-batches, or ranks wait for one another
                for ever.
        """
        rows = tuple(tuple(line.values()) for line in read_rows(text, name))
        if len(rows) != self.num_ranks:
            raise ScheduleError(
                f"{name}: has {len(rows)} rows; use {self.num_ranks}, one for each replica"
            )
        for rank, (row, due) in enumerate(zip(rows, self.rows(num_microbatches), strict=True)):
            if sorted(row) != sorted(due):
                raise ScheduleError(
                    f"{name}:{rank + 1}: {_difference(row, due)}; a rank of stage "
                    f"{self.stage_of[rank]} runs F and B of its own micro-batches once each"
                )
        for _ in in_order(rows, self):
            pass
        return rows

    def check_shares(self, num_microbatches: int) -> None:
        """Refuse micro-batches that the replicas of a stage cannot share evenly.

        Raises:
            ScheduleError: naming the stage.
        """
        for stage, count in enumerate(self.counts):
            if num_microbatches % count:
                raise ScheduleError(
                    f"stage {stage} has {count} replicas, which {num_microbatches} micro-batches "
                    f"cannot be shared out to evenly; use a multiple of {count}"
                )

    def _row(self, rank: int, microbatches: int, warmups: Sequence[int]) -> Iterator[Action]:
        """The actions of one rank: those of 1F1B on every so-many-th micro-batch."""
        stage = self.stage_of[rank]
        count = self.counts[stage]
        within = rank - self.ranks(stage)[0]
        for _, kind, number in one_f_one_b_row(stage, warmups[stage], microbatches // count):
            yield Action(stage, kind, within + count * number)


def in_order(rows: Sequence[Sequence[Action]], replicas: StageReplicas) -> Iterator[Action]:
    """The actions of all ranks, each behind those that it needs.

    REDUCE_GRAD number k of a stage, in the rows of all its replicas, needs the k-th backward of
    each and comes once.

    Raises:
        ScheduleError: ranks wait for one another for ever.
    """
    left = [list(reversed(row)) for row in rows]
    done: set[Action] = set()
    while any(left):
        before = sum(map(len, left))
        for row in left:
            while row and done.issuperset(_needs(row[-1], replicas)):
                action = row.pop()
                if action not in done:
                    done.add(action)
                    yield action
        if sum(map(len, left)) == before:
            waiting = next(row[-1] for row in left if row)
            raise ScheduleError(f"the order of the stages hangs: nothing lets {waiting} begin")


def _needs(action: Action, replicas: StageReplicas) -> tuple[Action, ...]:
    """The actions of other ranks that an action waits for."""
    stage, kind, number = action
    if kind == Kind.REDUCE_GRAD and number is not None:
        count = replicas.counts[stage]
        return tuple(Action(stage, Kind.B, number * count + copy) for copy in range(count))
    if kind == Kind.B and stage == replicas.stages - 1:
        return (Action(stage, Kind.F, number),)
    other = stage - 1 if kind == Kind.F else stage + 1
    return (Action(other, kind, number),) if 0 <= other < replicas.stages else ()


def _difference(row: Sequence[Action], due: Sequence[Action]) -> str:
    """The first action that a row has more or less often than it must."""
    first = next(a for a in sorted({*row, *due}) if row.count(a) != due.count(a))
    return f"{first} stands {row.count(first)} times, not {due.count(first)}"
