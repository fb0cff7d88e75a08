"""Times collectives on this machine: one group of ranks alone, then several groups at once.

`parsim collectives --measure` starts it twice: outside torchrun it says what there is to measure
on, or refuses; as a rank it measures. All ranks are there from the start. While the first group is
timed alone, the others wait in a barrier, which costs processors nothing.
"""

from __future__ import annotations

import argparse
import datetime
import json
import math
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from executor.calibration.file import hardware_name
from executor.faults import end_with_parent, finish
from executor.mesh import DeviceReport, probe, rank_device
from executor.parallel import buckets
from executor.train import process_group
from parsim.cluster.reader import load_catalog
from parsim.errors import InputError, ParsimError

VALUE = 4  # bytes of a float32
WARMUP = 2
REPEATS = (5, 40)
CLOCK_GRAIN = 5e-3
"""Calls are repeated within one timing until they last about this long, seconds."""
LEAST_CALLS, MOST_CALLS = 2, 50
RESERVE = 5.0
"""Seconds kept for writing and for the ranks to end."""
BUSY = 0.6
"""Share of a case's time that its timings may take; warm-up and barriers take the rest."""

Work = Callable[[], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Team:
    """One group of ranks; `own` says whether this rank is in it."""

    ranks: tuple[int, ...]
    group: Any
    own: bool


def hardware(report: DeviceReport) -> dict[str, Any]:
    """What there is to measure on; `system` is the catalog's with this device, None if none is."""
    from executor.calibrate import base_device

    catalog = load_catalog()
    found = None
    try:
        base = base_device(report, tuple(catalog.devices))
        found = next((one.id for one in catalog.systems.values() if one.device.id == base), None)
    except InputError:
        pass  # a GPU that the catalog lacks can be measured all the same
    return {
        "kind": report.kind,
        "backend": report.backend,
        "count": report.count,
        "most_ranks": most_ranks(report),
        "hardware": hardware_name(report).removeprefix("one core of "),
        "system": found,
    }


def most_ranks(report: DeviceReport) -> int:
    """How many ranks can run here: a GPU each unless they can share it, some to a core."""
    return report.count if not report.shareable else max(16, 4 * report.count)


def teams(ranks: int, groups: int) -> list[Team]:
    """Neighbouring ranks by group; every rank makes all of them."""
    made = []
    for first in range(0, ranks * groups, ranks):
        members = tuple(range(first, first + ranks))
        group = dist.new_group(list(members))
        made.append(Team(ranks=members, group=group, own=dist.get_rank() in members))
    return made


def work_of(kind: str, size: int, team: Team, device: torch.device) -> Work:
    """A call of one collective of S = `size` bytes on a group."""
    data = torch.zeros(size // VALUE, device=device)
    group, first = team.group, team.ranks[0]
    part = torch.zeros(max(data.numel() // len(team.ranks), 1), device=device)
    if kind == "all_reduce":
        return lambda: dist.all_reduce(data, group=group)
    if kind == "broadcast":
        return lambda: dist.broadcast(data, src=first, group=group)
    if kind == "reduce":
        return lambda: dist.reduce(data, dst=first, group=group)
    if kind == "all_gather":
        return lambda: buckets.ALL_GATHER(data, part, group=group)
    if kind == "reduce_scatter":
        return lambda: buckets.REDUCE_SCATTER(part, data, group=group)
    other = torch.zeros_like(data)
    if kind == "all_to_all":
        return lambda: dist.all_to_all_single(other, data, group=group)
    place = team.ranks.index(dist.get_rank())
    after, before = team.ranks[(place + 1) % len(team.ranks)], team.ranks[place - 1]

    def shift() -> None:
        pair = [dist.P2POp(dist.isend, data, after, group),
                dist.P2POp(dist.irecv, other, before, group)]  # fmt: skip
        for one in dist.batch_isend_irecv(pair):
            one.wait()

    return shift


def ran(work: Work, calls: int, device: torch.device) -> tuple[float, float]:
    """When `calls` in a row began and ended on this rank, seconds.

    Processors share one clock, which tells when the last rank of all ends. A GPU's clock is its
    own: it begins at 0.
    """
    if device.type == "cpu":
        began = time.perf_counter()
        for _ in range(calls):
            work()
        return began, time.perf_counter()
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize(device)
    start.record()
    for _ in range(calls):
        work()
    end.record()
    torch.cuda.synchronize(device)
    return 0.0, float(start.elapsed_time(end)) * 1e-3


def slowest(seconds: float, device: torch.device) -> float:
    """The most that any rank says: then all decide alike."""
    found = torch.tensor(seconds, dtype=torch.float64, device=device)
    dist.all_reduce(found, op=dist.ReduceOp.MAX)
    return float(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """Groups that run a collective at once; `work` is this rank's call, None where it waits.

    `calls` in a row are one timing, of `seconds` or so.
    """

    active: tuple[Team, ...]
    work: Work | None
    calls: int
    seconds: float


def prepared(kind: str, size: int, active: Sequence[Team], device: torch.device) -> Phase:
    """A phase after its warm-up, with as many calls a timing as all ranks agree on."""
    own = next((team for team in active if team.own), None)
    work = work_of(kind, size, own, device) if own else None
    once = 0.0
    for calls in (1, WARMUP):
        dist.barrier()
        began, ended = ran(work, calls, device) if work else (0.0, 0.0)
        once = slowest((ended - began) / calls, device)
    calls = min(max(math.ceil(CLOCK_GRAIN / max(once, 1e-7)), LEAST_CALLS), MOST_CALLS)
    return Phase(active=tuple(active), work=work, calls=calls, seconds=once * calls)


def timed(
    kind: str, size: int, phases: Sequence[Sequence[Team]], budget: float, device: torch.device
) -> list[dict[str, Any]]:
    """Rows of a collective with one group active, and with all: their timings take turns.

    So a machine that gets busier meanwhile slows all of them. Rank 0 returns the rows.
    """
    ready = [prepared(kind, size, active, device) for active in phases]
    lasts = sum(phase.seconds for phase in ready)
    repeats = min(max(int(budget / max(lasts, 1e-6)), REPEATS[0]), REPEATS[1])
    found: list[list[tuple[float, float]]] = [[] for _ in ready]
    for _ in range(repeats):
        for phase, times in zip(ready, found, strict=True):
            dist.barrier()
            times.append(ran(phase.work, phase.calls, device) if phase.work else (0.0, 0.0))
    every = torch.zeros((dist.get_world_size(), len(ready), repeats, 2), dtype=torch.float64)
    every[dist.get_rank()] = torch.tensor(found, dtype=torch.float64)
    every = every.to(device)
    dist.all_reduce(every)
    if dist.get_rank():
        return []
    return [
        {"collective": kind, "bytes": size, "groups": len(phase.active),
         **summary(every[:, i], phase.active, phase.calls), "repeats": repeats,
         "calls": phase.calls}
        for i, phase in enumerate(ready)
    ]  # fmt: skip


def summary(times: Tensor, active: Sequence[Team], calls: int) -> dict[str, float]:
    """Median, deviation and least over repeats of a call's seconds, first start to last end.

    Args:
        times: start and end by rank and repeat, (ranks, repeats, 2).
        active: the groups that ran.
        calls: in each timing.
    """
    own = times[[rank for team in active for rank in team.ranks]]
    lasted = ((own[..., 1].amax(dim=0) - own[..., 0].amin(dim=0)) / calls).tolist()
    middle = median(lasted)
    mad = median(abs(x - middle) for x in lasted)
    return {"time_s": middle, "mad_s": mad, "least_s": min(lasted)}


def measure(options: argparse.Namespace, report: DeviceReport) -> None:
    """One rank's part; rank 0 writes the document."""
    device = rank_device(report)
    left = max(options.until - time.time(), 1.0)
    with process_group(report.backend, left + 60.0):
        made = teams(options.ranks, options.groups)
        end = options.until - RESERVE
        done = 0
        phases = [made[:1], made] if options.groups > 1 else [made]
        cases = [
            (kind, size)
            for size in options.sizes
            for kind in options.kinds
            if size % (VALUE * options.ranks) == 0
        ]
        rows: list[dict[str, Any]] = []
        for done, (kind, size) in enumerate(cases):
            left = slowest(time.time() - end, device)  # the same on all ranks
            if left >= 0.0:
                break
            rows += timed(kind, size, phases, BUSY * -left / (len(cases) - done), device)
        else:
            done = len(cases)
        if dist.get_rank() == 0:
            document = _document(options, report, rows, left_out=len(cases) - done)
            options.out.write_text(json.dumps(document), encoding="utf-8")
        dist.barrier()


def _document(
    options: argparse.Namespace, report: DeviceReport, rows: list[dict[str, Any]], *, left_out: int
) -> dict[str, Any]:
    said = []
    odd = [size for size in options.sizes if size % (VALUE * options.ranks)]
    if odd:
        said.append(
            f"{len(odd)} sizes are no multiple of {VALUE * options.ranks} B (a float32 a rank) "
            f"and were not measured"
        )
    if left_out:
        said.append(f"{left_out} measurements did not fit into the time; use a longer --time-limit")
    world = options.ranks * options.groups
    return {
        **hardware(report),
        "date": datetime.date.today().isoformat(),
        "torch": torch.__version__,
        "world_size": world,
        "oversubscribed": world > report.count,
        "load_before": options.load,
        "left_out": said,
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
    if "RANK" in os.environ:
        end_with_parent()
    try:
        report = probe(options.device)
        if "RANK" in os.environ:
            measure(options, report)
        else:
            sys.stdout.write(json.dumps(hardware(report)) + "\n")
        return 0
    except ParsimError as error:
        sys.stderr.write(f"error: {error}\n")
        return error.exit_code


if __name__ == "__main__":
    finish(main())
