"""One measured run of a network per CSV row, checked; a blank cell means the source does not say.

model, gpu_type, system           names of the catalog
strategy                          single, pipedream, or one of `DATA_PARALLEL` and `PIPELINES` (a
                                  stage a device; see row_strategy.py); others are told and skipped
servers, servers_on               of a parameter server: how many (blank: one on each host), on
                                  "hosts" or "devices"
node_sums, overlap                yes where the workers of a node send the sum of their gradients,
                                  and where they do so beside backward, or no; blank: as
                                  `OVERLAPPING` frameworks do
sync_every                        steps between averages of weights (local_sgd)
batch_per_gpu, global_batch_size  samples
samples_per_s, step_time_s        over all devices; one of them, or both of one step
covers                            what the time is of: blank, a whole step; "forward_backward", one
                                  without its update; "forward_backward input_gradient", the
                                  gradient of the samples too
layout                            of images: "channels_last" or "channels_first"; blank: the
                                  framework's
cudnn                             release of the library, such as 5.1; blank: the framework's
padded_length                     tokens that a batch of sentences is padded to, in the mean; blank:
                                  as many as they have in the catalog
out_of_scope                      why a row is not predicted, as its source has it; blank: it is
n_micro_batches, partition        of a pipeline; where blank, read from the note of the row
replicas                          of each of pipedream's stages, such as 7-1
replica_updates                   "late" where these do not wait for the sum of their gradients
speedup, speedup_over             how many times as fast as the same row with other cells, such as
                                  "strategy=single n_gpus=1"
peak_memory_gib_sum               summed over devices
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from parsim.errors import shown
from parsim.plan.strategies import DDP, Strategy
from parsim.units import GIB
from parsim.validation.cells import LARGEST, Cells, publisher_of
from parsim.validation.tables import RowSkipped
from parsim.validation.vision.row_strategy import (
    check_strategy,
    replicas_of_stages,
    replicated_by,
)

REQUIRED = (
    *("row_id", "framework", "model", "gpu_type", "system", "gpus_per_node", "n_gpus", "strategy"),
    *("precision", "batch_per_gpu", "global_batch_size", "samples_per_s"),
)
"""Columns that a table must have."""

OPTIONAL = (
    *("source", "n_micro_batches", "partition", "replicas", "recompute", "step_time_s", "note"),
    *("peak_memory_gib_sum", "speedup", "speedup_over", "internode_gbit_per_s_per_node"),
    *("servers", "servers_on", "node_sums", "overlap", "sync_every"),
    *("covers", "layout", "cudnn", "padded_length", "replica_updates", "out_of_scope"),
)
"""Columns that it may have; others are not read."""

STEP, GRADIENTS, INPUT_GRADIENT = "", "forward_backward", "forward_backward input_gradient"
COVERS = (STEP, GRADIENTS, INPUT_GRADIENT)
"""What a measured time may be of."""

UPDATES = ("", "late")
"""When replicas of pipedream's stages update: as soon as all have a gradient, or a round later."""

LAYOUTS = ("", "channels_last", "channels_first")
"""How the values of an image may lie in memory."""

SAME_STEP = 0.03
"""A speed and a step of one row that are further apart than rounding makes them contradict."""

MEMORY_BATCHES = {"u-net": 32, "amoebanet-d": 128}
"""Images of a batch in torchgpipe's memory benchmarks (main.py of each, commit a1b4ee2)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredSamples:
    """One row, typed; None where the source does not say. Seconds and bytes."""

    row_id: str
    framework: str
    model: str
    gpu_type: str
    system: str
    gpus_per_node: int
    n_gpus: int
    strategy: str
    precision: str
    batch_per_gpu: int | None
    global_batch_size: int
    n_micro_batches: int
    partition: tuple[int, ...]
    recompute: str
    step_time: float | None
    peak_memory: float | None
    replicas: tuple[int, ...] = ()
    speedup: float | None = None
    internode_gbit: float | None = None
    assumed_batch: bool = False
    replicated_by: Strategy = DDP
    publisher: str = ""
    covers: str = STEP
    layout: str = ""
    cudnn: float | None = None
    padded_length: int | None = None
    late_updates: bool = False


class _Results(NamedTuple):
    """What a row says was measured: seconds of a step, bytes over all devices, a speed-up."""

    step_time: float | None
    peak_memory: float | None
    speedup: float | None


def is_samples(columns: object) -> bool:
    """Whether a header, or a row, is of this schema."""
    return isinstance(columns, list | dict) and {"samples_per_s", "strategy"} <= set(columns)


def parse_samples(row: Mapping[str, str]) -> MeasuredSamples:
    """Check one row and give it types.

    Raises:
        RowSkipped: a needed figure is missing or garbage, or the strategy cannot be predicted, or
            the row says that it is out of scope.
    """
    _check_scope(row)
    check_strategy(row["strategy"])
    cells, note = Cells(row), row.get("note", "")
    batch, batch_is_assumed = _global_batch(row, cells)
    results = _results(cells, batch)
    return MeasuredSamples(
        row_id=row["row_id"],
        framework=row["framework"],
        model=row["model"],
        gpu_type=row["gpu_type"],
        system=row["system"],
        gpus_per_node=cells.need("gpus_per_node"),
        n_gpus=cells.need("n_gpus"),
        strategy=row["strategy"],
        precision=row["precision"],
        batch_per_gpu=cells.positive("batch_per_gpu"),
        global_batch_size=batch,
        n_micro_batches=cells.positive("n_micro_batches") or _told(note, r"micro-batches (\d+)"),
        partition=_partition(row.get("partition", ""), note),
        recompute=row.get("recompute", "") or "none",
        step_time=results.step_time,
        peak_memory=results.peak_memory,
        replicas=replicas_of_stages(row, cells.need("n_gpus")),
        speedup=results.speedup,
        internode_gbit=cells.number("internode_gbit_per_s_per_node"),
        assumed_batch=batch_is_assumed,
        replicated_by=replicated_by(row, cells),
        publisher=publisher_of(row.get("source", "")),
        covers=row.get("covers", ""),
        layout=row.get("layout", ""),
        cudnn=cells.number("cudnn"),
        padded_length=cells.positive("padded_length"),
        late_updates=row.get("replica_updates", "") == "late",
    )


def _check_scope(row: Mapping[str, str]) -> None:
    if reason := row.get("out_of_scope", ""):
        raise RowSkipped(shown(reason))
    choices = (("covers", COVERS), ("layout", LAYOUTS), ("replica_updates", UPDATES))
    for column, allowed in choices:
        if (cell := row.get(column, "")) not in allowed:
            listed = ", ".join(allowed[1:])
            raise RowSkipped(f"{column}='{shown(cell)}' must be blank or one of {listed}")


def _global_batch(row: Mapping[str, str], cells: Cells) -> tuple[int, bool]:
    """Samples of a step over all devices, and whether they are assumed, not stated."""
    devices = cells.need("n_gpus")
    batch = cells.positive("global_batch_size") or (cells.positive("batch_per_gpu") or 0) * devices
    if batch:
        return batch, False
    if assumed := _assumed_batch(row):
        return assumed, True
    raise RowSkipped("neither global_batch_size nor batch_per_gpu is stated")


def _results(cells: Cells, batch: int) -> _Results:
    """The figures that were measured with a batch of so many samples: at least one of them."""
    step = _step_time(cells, batch)
    memory = cells.number("peak_memory_gib_sum")
    speedup = cells.number("speedup")
    if step is None and memory is None and speedup is None:
        raise RowSkipped(
            "neither samples_per_s, step_time_s, peak_memory_gib_sum nor speedup is stated"
        )
    return _Results(step, None if memory is None else memory * GIB, speedup)


def _step_time(cells: Cells, batch: int) -> float | None:
    """Seconds of a step: of the speed, which is what most sources print, else as they stand.

    Raises:
        RowSkipped: both stand there and are not of one step.
    """
    speed, step = cells.number("samples_per_s"), cells.number("step_time_s")
    if not speed:
        return step
    if step and abs(step * speed / batch - 1.0) > SAME_STEP:
        raise RowSkipped(
            f"samples_per_s={speed:g} is a step of {batch / speed:.4g} s with {batch} samples, but "
            f"step_time_s={step:g}; leave one of them blank"
        )
    return batch / speed


def stated_speedup(row: Mapping[str, str]) -> float | None:
    """The speed-up of a row that may be wrong otherwise; None where there is none to read."""
    try:
        return Cells(row).number("speedup")
    except RowSkipped:
        return None


def baseline_of(row: Mapping[str, str]) -> dict[str, str]:
    """The row that a speed-up is over: this one with the cells that `speedup_over` names.

    Raises:
        RowSkipped: it names none, or a column that no row has.
    """
    words = row.get("speedup_over", "").split()
    changes = dict(word.partition("=")[::2] for word in words)
    if not changes or any(name not in row for name in changes):
        raise RowSkipped(
            f"speedup_over='{shown(row.get('speedup_over', ''))}' must name cells of the row that "
            f"it is over, such as strategy=data_parallel"
        )
    return {**row, **changes}


def _assumed_batch(row: Mapping[str, str]) -> int:
    """The batch of torchgpipe's memory benchmarks, whose tables print it nowhere; else 0."""
    known = row["framework"].startswith("torchgpipe") and row.get("peak_memory_gib_sum", "")
    starts = (start for start in MEMORY_BATCHES if known and row["model"].startswith(start))
    return next((MEMORY_BATCHES[start] for start in starts), 0)


def _told(note: str, pattern: str) -> int:
    match = re.search(pattern, note)
    return max(int(match[1]), 1) if match else 1


def _partition(cell: str, note: str) -> tuple[int, ...]:
    """Layers of each stage: of the cell, else as the note has them."""
    match = re.search(r"layers per partition ([\d-]+)", note)
    text = cell or (match[1] if match else "")
    counts = re.findall(r"\d+", text)
    if any(int(count) > LARGEST for count in counts):
        raise RowSkipped(f"partition='{shown(cell)}' must be numbers of layers, such as 104-137")
    return tuple(map(int, counts))
