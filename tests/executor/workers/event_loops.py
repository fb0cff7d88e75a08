"""Tells how gloo's event loops are scheduled after each kind of group is made."""

from __future__ import annotations

import os
import sys

import torch.distributed as dist

from executor.collectives.timing import team
from executor.devices.event_loops import event_loops
from executor.devices.mesh import process_group, subgroup
from tests.executor.launch import results


def main(folder: str) -> None:
    with process_group("gloo", 60.0):
        seen = [policies()]
        subgroup([[0, 1]])
        seen.append(policies())
        team([0, 1])
        seen.append(policies())
        results(folder, dist.get_rank(), seen)


def policies() -> list[int]:
    """The scheduling policy of each event loop."""
    return [os.sched_getscheduler(loop) for loop in event_loops()]


if __name__ == "__main__":
    main(*sys.argv[1:])
