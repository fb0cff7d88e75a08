"""What is said when torchrun has started the ranks again after a fault.

Rank 0 of the new attempt works out which rank failed in the one before and writes one line into
`OUT/errors/attempt<A>/restart.txt`, from where the launcher passes it on to the user.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path

import torch.distributed as dist

from executor.diagnosis import Evidence, explain
from executor.faults import attempt, attempt_folder

NOTE = "restart.txt"


def agreed_attempt() -> int:
    """How often the ranks were started again, the same on all of them.

    Each machine counts only the restarts that began there.
    """
    found: list[int] = [0] * dist.get_world_size()
    dist.all_gather_object(found, attempt())
    return max(found)


def tell_restart(out: Path, timeout: float, step: int) -> None:
    """On rank 0 of a later attempt: say what ended the one before, and where training goes on."""
    number = attempt()
    if not number or dist.get_rank() != 0:
        return
    evidence = Evidence.read(out, dist.get_world_size(), timeout, attempt=number - 1)
    where = f"goes on from step {step}" if step else "begins again at step 0"
    told = f"{explain(evidence)[0]}; training {where} (restart {number})"
    sys.stderr.write(f"{told}\n")
    with suppress(OSError):
        path = attempt_folder(out, number) / NOTE
        part = path.with_suffix(".part")
        part.write_text(f"{told}\n", encoding="utf-8")
        part.replace(path)
