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

from dataclasses import replace

from parsim.strategy.program import DATA, Meeting, StepProgram, Task, Waits
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
    broadcast, all_gather, reduce = (
        () if one_memory else (route,) for route in ("broadcast", "all_gather", "reduce")
    )
    tasks: list[Task] = []
    for number in range(microbatches):
        forward, backward = (
            replace(task, waits=Waits.RANK)
            for task in passes(ranks, microbatches)
            if task.microbatch == number
        )
        tasks += [
            _together(SpanKind.SCATTER, "scatter", number, ranks),
            _together(SpanKind.REPLICATE, "replicate", number, ranks, *broadcast),
            forward,
            _together(SpanKind.GATHER_OUTPUT, "gather", number, ranks, *all_gather),
            Task(
                name=f"loss {number}", kind=SpanKind.LOSS, ranks=ranks, price="loss",
                waits=Waits.RANK, meets=Meeting.STAGES,
            ),
            backward,
            _together(SpanKind.REDUCE_GRAD, "reduce", number, ranks, *reduce),
        ]  # fmt: skip
    tasks.append(
        Task(
            name="update", kind=SpanKind.OPTIMIZER, ranks=ranks[:1], price=OPTIMIZER,
            waits=Waits.RANK, on_device=True,
        )
    )  # fmt: skip
    return StepProgram(
        tasks=tuple(tasks),
        ranks=devices,
        roles=("device 0", *(f"device {number}" for number in ranks[1:])),
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
