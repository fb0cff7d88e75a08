"""Single-process DataParallel: device 0 hands out weights and samples every step, and collects.

    device 0   SCATTER | REPLICATE | F | GATHER | loss | B | REDUCE_GRAD | UPDATE |
    device 1                       | F |               | B |
    device 2                       | F |               | B |

    step = scatter + replicate + max(F, n host) + gather + B + reduce + update

with n devices behind one Python process: its threads launch the forwards one after another, so that
n devices need n times the host's seconds; backwards are launched by threads without Python's lock.
Out of device 0 go the weights and (n - 1)/n of the batch, in come gradients and outputs. Only
device 0 holds the optimizer, the whole batch's input and its outputs. Cores of one processor copy
in its memory.

Source: torch.nn.DataParallel (torch/nn/parallel/data_parallel.py, comm.cpp: broadcast and reduce by
NCCL where it is there).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from parsim.strategy.program import StepProgram
from parsim.strategy.task import DATA, Meeting, Task, Waits
from parsim.strategy.workers import OPTIMIZER, passes
from parsim.timelines.kinds import SpanKind


def single_process(devices: int, microbatches: int = 1, *, one_memory: bool = False) -> StepProgram:
    """Write the program of a step of nn.DataParallel on the devices of one node.

    Args:
        devices: that the process drives.
        microbatches: passes of a step.
        one_memory: whether the devices share a memory, in which copies take no links.
    """
    ranks = tuple(range(devices))
    tasks = [
        task
        for number in range(microbatches)
        for task in _pass(ranks, number, microbatches, one_memory=one_memory)
    ]
    return StepProgram(
        tasks=(*tasks, _update(ranks[0])),
        ranks=devices,
        roles=("device 0", *(f"device {number}" for number in ranks[1:])),
    )


def _pass(
    ranks: tuple[int, ...], number: int, microbatches: int, *, one_memory: bool
) -> Iterator[Task]:
    """One of the passes of a step, between handing out samples and adding up gradients."""
    broadcast, all_gather, reduce = (
        () if one_memory else (route,) for route in ("broadcast", "all_gather", "reduce")
    )
    forward, backward = (
        replace(task, waits=Waits.RANK)
        for task in passes(ranks, microbatches)
        if task.microbatch == number
    )
    yield _together(SpanKind.SCATTER, "scatter", number, ranks)
    yield _together(SpanKind.REPLICATE, "replicate", number, ranks, *broadcast)
    yield forward
    yield _together(SpanKind.GATHER_OUTPUT, "gather", number, ranks, *all_gather)
    yield Task(
        name=f"loss {number}",
        kind=SpanKind.LOSS,
        ranks=ranks,
        price="loss",
        waits=Waits.RANK,
        meets=Meeting.STAGES,
    )
    yield backward
    yield _together(SpanKind.REDUCE_GRAD, "reduce", number, ranks, *reduce)


def _update(rank: int) -> Task:
    """The optimizer's step, on the device that collects."""
    return Task(
        name="update",
        kind=SpanKind.OPTIMIZER,
        ranks=(rank,),
        price=OPTIMIZER,
        waits=Waits.RANK,
        on_device=True,
    )


def _together(kind: str, price: str, number: int, ranks: tuple[int, ...], *routes: str) -> Task:
    """Something between device 0 and the others, which wait for it."""
    return Task(
        name=f"{price} {number}",
        kind=kind,
        ranks=ranks,
        stream=DATA,
        price=price,
        waits=Waits.RANK,
        meets=Meeting.STAGES,
        routes=routes,
        microbatch=number,
    )
