"""DualPipe and DualPipeV: every rank works on an early and on a late stage in turn, both ways.

DualPipe has two copies of the model in opposite directions, stages 0 .. pp-1 down the ranks and
pp .. 2pp-1 up them; DualPipeV cuts it in half: one copy in 2 pp stages, placed as a V. Two ranks of
DualPipeV, four micro-batches, one slot per action:

    rank 0 | 0F0 0F1 0F2 3F0 3I0 3W0 3F1 0F3 3B1 3F2 0B0 3B2 3F3 0B1 3B3 0I2 0W2 0I3 0W3
    rank 1 | ... 1F0 2F0 1F1 2F1 1F2 2B0 2F2 1B0 1F3 2B1 2F3 1B1 2B2 1B2 2I3 1I3 2W3 1W3

In the middle of the step a forward of one stage and a backward of the other make a pair, in which
exchanges of experts can hide under computation. Here the two run one behind the other, each giving
its result on when it ends, so that there is less idle time than the papers state for pairs that end
together (F&B = F + B). At least twice as many micro-batches as the V has ranks (DualPipe: as many
as ranks in each direction) fill it; fewer leave gaps. Idle time of a rank, for F = I >= W:

    DualPipe    (pp/2 - 1)(F + I - W)     pairs that end together: (pp/2 - 1)(F&B + B - 3W)
    DualPipeV   (pp - 1)(F + I - W)       pairs that end together: (pp - 1)(F&B + B - 3W)

those of DualPipeV in times of a chunk, half of a rank. DualPipe holds two copies of the weights and
pp + 1 micro-batches, DualPipeV one copy and 2 pp + 1 chunks.

Source: the READMEs of deepseek-ai/DualPipe (3da1bbe), DeepSeek-V3 (arXiv 2412.19437), section
3.2.1, and PyTorch's ScheduleDualPipeV.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from parsim.schedule.actions import Action, Kind, require_positive
from parsim.schedule.families.chimera import both_ways, require_two_ways
from parsim.schedule.families.v_shape import v_placement
from parsim.schedule.schedule import Schedule


def dualpipe(pp: int, num_microbatches: int) -> Schedule:
    """Build DualPipe: two copies of the model, half of the micro-batches in each direction.

    Raises:
        ScheduleError: a size is below 1, or pp or num_microbatches is odd.
    """
    require_two_ways("dualpipe", pp, num_microbatches)
    half = num_microbatches // 2
    rows = []
    for rank in range(pp):
        down, up = _Side(rank, 0), _Side(2 * pp - 1 - rank, half)
        early, late = (down, up) if rank < pp // 2 else (up, down)
        rows.append(_row(early, late, min(rank, pp - 1 - rank), pp // 2, half))
    return Schedule(
        name="dualpipe",
        ranks=tuple(rows),
        stage_rank=both_ways(pp),
        num_microbatches=num_microbatches,
        copies=2,
    )


def dualpipe_v(pp: int, num_microbatches: int) -> Schedule:
    """Build DualPipeV, the half of DualPipe that needs no second copy of the weights.

    From 2 pp micro-batches on it is PyTorch's ScheduleDualPipeV, action for action.

    Raises:
        ScheduleError: a size is below 1.
    """
    require_positive(pp=pp, num_microbatches=num_microbatches)
    rows = (
        _row(_Side(rank, 0), _Side(2 * pp - 1 - rank, 0), rank, pp, num_microbatches)
        for rank in range(pp)
    )
    return Schedule(
        name="dualpipe_v",
        ranks=tuple(rows),
        stage_rank=v_placement(pp),
        num_microbatches=num_microbatches,
    )


@dataclass(slots=True)
class _Side:
    """A stage of a rank: its copy's first micro-batch, and how many F and I (or B) have run."""

    stage: int
    first: int
    forwards: int = 0
    backwards: int = 0


@dataclass(slots=True)
class _Row:
    """The actions of a rank so far, and the W that it has put off."""

    actions: list[Action] = field(default_factory=list)
    weights: deque[Action] = field(default_factory=deque)

    def forward(self, side: _Side) -> None:
        self.actions.append(Action(side.stage, Kind.F, side.first + side.forwards))
        side.forwards += 1

    def backward(self, side: _Side, *, split: bool = False) -> None:
        mb = side.first + side.backwards
        self.actions.append(Action(side.stage, Kind.I if split else Kind.B, mb))
        if split:
            self.weights.append(Action(side.stage, Kind.W, mb))
        side.backwards += 1

    def weight(self) -> None:
        self.actions.append(self.weights.popleft())


def _row(early: _Side, late: _Side, position: int, depth: int, m: int) -> tuple[Action, ...]:
    """A rank's row: its place from the outside among `depth` ranks, m micro-batches each way.

    Built for as many micro-batches as fill the pipeline, then cut to m.
    """
    full = max(m, 2 * depth)
    before, behind = depth - position - 1, position + 1
    row = _Row()
    for _ in range(2 * before):
        row.forward(early)
    for _ in range(behind):
        row.forward(early)
        row.forward(late)
    for _ in range(before):
        row.backward(late, split=True)
        row.weight()
        row.forward(late)
    for _ in range(full - 2 * depth + behind):
        row.forward(early)
        row.backward(late)
        row.forward(late)
        row.backward(early)
    for _ in range(before):
        row.backward(late)
        row.forward(late)
        row.backward(early)
    _cool_down(row, early, late, position, depth)
    last = {side.stage: side.first + m for side in (early, late)}
    return tuple(action for action in row.actions if action.microbatch < last[action.stage])


def _cool_down(row: _Row, early: _Side, late: _Side, position: int, depth: int) -> None:
    """The last backwards, in the second half with their W put off, which then fill the gaps."""
    before, behind = depth - position - 1, position + 1
    middle = behind // 2
    for i in range(behind):
        row.backward(late, split=i + position % 2 > middle)
        row.backward(early, split=i >= middle)
    for _ in range(before):
        row.weight()
        row.backward(early, split=True)
    while row.weights:
        row.weight()
