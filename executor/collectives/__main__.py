"""Times collectives on this machine: one group of ranks alone, then several groups at once.

`parsim collectives --measure` starts it twice: outside torchrun it says what there is to measure
on, or refuses; as a rank it measures. All ranks are there from the start. While the first group is
timed alone, the others wait in a barrier, which costs processors nothing.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from executor.collectives.timing import VALUE, teams, timed
from executor.devices.all_ranks import largest
from executor.devices.capacity import most_ranks
from executor.devices.machine import (
    DeviceReport,
    base_device,
    hardware_name,
    probe,
    rank_device,
)
from executor.devices.mesh import process_group
from executor.faults.parent import command
from executor.faults.reports import finish
from parsim.cluster.reader import load_catalog
from parsim.errors import InputError

RESERVE = 5.0
"""Seconds kept for writing and for the ranks to end."""
BUSY = 0.6
"""Share of a case's time that its timings may take; warm-up and barriers take the rest."""


def hardware(report: DeviceReport) -> dict[str, Any]:
    """What there is to measure on; `system` is the catalog's with this device, None if none is."""
    catalog = load_catalog()
    system = None
    try:
        base = base_device(report)
        systems = catalog.systems.items()
        system = next((id for id, entry in systems if entry.device.id == base), None)
    except InputError:
        pass  # a GPU that the catalog lacks can be measured all the same
    return {
        "kind": report.kind,
        "backend": report.backend,
        "count": report.count,
        "most_ranks": most_ranks(report),
        "hardware": hardware_name(report).removeprefix("one core of "),
        "system": system,
    }


def measure(options: argparse.Namespace, report: DeviceReport) -> None:
    """One rank's part; rank 0 writes the document."""
    device = rank_device(report)
    left = max(options.until - time.time(), 1.0)
    with process_group(report.backend, left + 60.0, device):
        cases = [
            (kind, size)
            for size in options.sizes
            for kind in options.kinds
            if size % (VALUE * options.ranks) == 0
        ]
        rows = _timed_cases(options, cases, device)
        if dist.get_rank() == 0:
            document = _document(options, report, rows, left_out=len(cases))
            options.out.write_text(json.dumps(document), encoding="utf-8")
        dist.barrier()


def _timed_cases(
    options: argparse.Namespace, cases: list[tuple[str, int]], device: torch.device
) -> list[dict[str, Any]]:
    """Time cases as long as there is time, and take them off the list."""
    every = teams(options.ranks, options.groups)
    phases = [every[:1], every] if options.groups > 1 else [every]
    end = options.until - RESERVE
    rows: list[dict[str, Any]] = []
    while cases:
        left = -largest(time.time() - end, device)  # the same on all ranks
        if left <= 0.0:
            break
        share = BUSY * left / len(cases)
        rows += timed(*cases.pop(0), phases, share, device)
    return rows


def _document(
    options: argparse.Namespace, report: DeviceReport, rows: list[dict[str, Any]], *, left_out: int
) -> dict[str, Any]:
    """The rows with the hardware, and why some sizes were not measured."""
    reasons = []
    odd = [size for size in options.sizes if size % (VALUE * options.ranks)]
    if odd:
        reasons.append(
            f"{len(odd)} sizes are no multiple of {VALUE * options.ranks} B (a float32 a rank) "
            f"and were not measured"
        )
    if left_out:
        reasons.append(
            f"{left_out} measurements did not fit into the time; use a longer --time-limit"
        )
    world = options.ranks * options.groups
    return {
        **hardware(report),
        "date": datetime.date.today().isoformat(),
        "torch": torch.__version__,
        "world_size": world,
        "oversubscribed": world > report.count,
        "load_before": options.load,
        "left_out": reasons,
        "rows": rows,
    }


def main() -> int:
    """Say what there is to measure on (outside torchrun), or measure (inside it)."""
    parser = argparse.ArgumentParser(prog="python -m executor.collectives", description=__doc__)
    parser.add_argument("--device")
    parser.add_argument("--kinds", type=lambda text: text.split(","), default=[])
    parser.add_argument("--sizes", type=lambda text: [int(x) for x in text.split(",")], default=[])
    parser.add_argument("--ranks", type=int, default=0)
    parser.add_argument("--groups", type=int, default=1)
    parser.add_argument("--until", type=float, default=0.0)
    parser.add_argument("--load", type=float)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    return command(lambda: _work(options))


def _work(options: argparse.Namespace) -> None:
    report = probe(options.device)
    if "RANK" in os.environ:
        measure(options, report)
    else:
        sys.stdout.write(json.dumps(hardware(report)) + "\n")


if __name__ == "__main__":
    finish(main())
