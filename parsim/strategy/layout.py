"""Layouts on a mesh of devices: every tensor split, whole or partial on each axis.

    all devices  | F conv1..flatten | all-gather | F fc6 | all-gather | F fc7 | ...
                 ... | B fc6 | reduce-scatter | B flatten..conv1 | norm, update
    stream                                    | all-reduce of conv5 .. conv1 |

    step = m (F + B + changes of layout) + what no backward hides of the gradients' sums + update

Every device does the same with its parts of the tensors; where an operation wants another layout
than a tensor has, the devices of an axis meet in a collective, and in the dual one on the way back.
The gradient of a parameter that is whole on an axis is a sum over it: in the last micro-batch these
are all-reduced in buckets while backward goes on. Then all take the norm, and update.

Source: Mesh-TensorFlow (arXiv:1811.02084); OneFlow's SBP (arXiv:2110.15032); Krizhevsky 2014, One
weird trick (arXiv:1404.5997), a case of it. Leaves out: changes of layout that run beside compute.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from parsim.strategy.program import StepProgram
from parsim.strategy.task import COMPUTE, DATA, Meeting, Task, Waits
from parsim.timelines.kinds import SpanKind

FORWARD, BACKWARD, EXCHANGE = "forward", "backward", "exchange"
"""Names of prices: a row for each run of operations, or each collective, of a micro-batch."""
REDUCE, NORM, UPDATE = "reduce", "norm", "optimizer"
"""Names of prices: a row for each bucket, one, one."""

Groups = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutPart:
    """One thing that all devices do in a micro-batch: compute, or meet in `groups`.

    `price` names seconds, `row` is its row; `route` is the collective.
    """

    price: str
    row: int
    groups: Groups = ()
    route: str = ""


def layout(
    parts: Sequence[LayoutPart],
    *,
    ranks: int,
    microbatches: int = 1,
    roles: tuple[str, ...] = (),
    last: Sequence[LayoutPart] = (),
) -> StepProgram:
    """Write the program of a step.

    Args:
        parts: of a micro-batch in order, forward and backward; gradients are summed in the last.
        ranks: devices of the mesh, with those of its replicas.
        microbatches: of each.
        roles: names of the devices.
        last: the parts of the last micro-batch, where they have rows of their own.
    """
    everybody, ending = tuple(range(ranks)), last or parts
    tasks = [
        task
        for number in range(microbatches)
        for part in (ending if number == microbatches - 1 else parts)
        if part.price != REDUCE or number == microbatches - 1
        for task in _tasks(part, number, everybody)
    ]
    tasks += [
        Task(
            name="norm", kind=SpanKind.GRAD_NORM, ranks=everybody, price=NORM, waits=Waits.RANK,
            meets=Meeting.STAGES,
        ),
        Task(
            name="update", kind=SpanKind.OPTIMIZER, ranks=everybody, price=UPDATE, on_device=True
        ),
    ]  # fmt: skip
    return StepProgram(tasks=tuple(tasks), ranks=ranks, roles=roles)


def _tasks(part: LayoutPart, microbatch: int, everybody: tuple[int, ...]) -> Iterator[Task]:
    """Compute on all devices, or a collective of each group."""
    if not part.groups:
        yield _compute(part, microbatch, everybody)
    for group in part.groups:
        yield _collective(part, microbatch, group)


def _compute(part: LayoutPart, microbatch: int, everybody: tuple[int, ...]) -> Task:
    """A forward or a backward, of which every device does its share."""
    kind = "F" if part.price == FORWARD else "B"
    return Task(
        name=f"{kind}{microbatch} {part.row}",
        kind=kind,
        ranks=everybody,
        price=part.price,
        at=(part.row,) * len(everybody),
        microbatch=microbatch,
        on_device=True,
    )


def _collective(part: LayoutPart, microbatch: int, group: tuple[int, ...]) -> Task:
    """A sum of gradients beside compute, or a change of layout that what is next waits for."""
    summed = part.price == REDUCE
    return Task(
        name=f"{part.price} {microbatch} {part.row} of {group[0]}",
        kind=SpanKind.REDUCE_GRAD if summed else SpanKind.EXCHANGE,
        ranks=group,
        # what is computed next waits for a change of layout, as if it were a kernel
        stream=DATA if summed else COMPUTE,
        waits=Waits.RANK if summed else Waits.ROW,
        price=part.price,
        at=(part.row,) * len(group),
        meets=Meeting.STAGES,
        routes=(part.route,),
        microbatch=microbatch,
    )
