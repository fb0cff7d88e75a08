"""How every kind of run begins on a rank, and what it was: versions, hardware, threads, load."""

from __future__ import annotations

import datetime
import hashlib
import importlib.metadata
import os
import platform
import shlex
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from executor.devices.machine import DeviceReport, hardware_name, nccl_version, rank_device
from executor.devices.mesh import process_group
from executor.faults.reports import HERE, fatal
from executor.run.results import predict
from parsim.launch.options import RunOptions
from parsim.scenario import Scenario
from parsim.sim import Prediction

PACKAGES = ("parsim-training", "torch", "numpy", "tokenizers", "nvidia-ml-py", "triton")


def provenance(
    scenario: Scenario, report: DeviceReport, options: RunOptions, began: datetime.datetime
) -> dict[str, Any]:
    """What rank 0 knows of the run, at its end; names of hardware, not of the machine.

    It stands under `meta` of `run.json`: all that may differ between two equal runs.
    """
    now = datetime.datetime.now(datetime.UTC)
    return {
        "began_at": began.isoformat(timespec="seconds"),
        "ended_at": now.isoformat(timespec="seconds"),
        "command": shlex.join(["parsim", "run", *options.words(scenario.path or Path())]),
        "seed": options.seed,
        "scenario": _scenario(scenario, options),
        "calibration": [_file(path) for path in scenario.catalog],
        "versions": versions(report.kind),
        "host": host(report),
        "threads": torch.get_num_threads(),
        "load": load(),
    }


def versions(kind: str) -> dict[str, str]:
    """Versions of Python, of the packages that are installed, and of what drives the devices."""
    known = {"python": platform.python_version()}
    for name in PACKAGES:
        with suppress(importlib.metadata.PackageNotFoundError):
            known[name] = importlib.metadata.version(name)
    if kind == "cuda":
        known["cuda"] = str(torch.version.cuda)
        known["nccl"] = ".".join(map(str, nccl_version()))
    return known


def host(report: DeviceReport) -> dict[str, Any]:
    """Processor or GPU, how many, memory of the host in bytes, operating system."""
    return {
        "device": hardware_name(report),
        "devices": report.count,
        "nodes": report.nodes,
        "cores": os.cpu_count(),
        "memory_bytes": _memory(),
        "system": f"{platform.system()} {platform.release()}",
    }


def load() -> float | None:
    """Processes that wanted a core in the last minute, those of the run included."""
    with suppress(OSError, AttributeError):
        return os.getloadavg()[0]
    return None


def _memory() -> int | None:
    with suppress(OSError, ValueError):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return None


def _scenario(scenario: Scenario, options: RunOptions) -> dict[str, Any]:
    path = scenario.path
    text = path.read_text("utf-8") if path is not None and path.is_file() else None
    name = None if path is None else path.name
    return {"file": name, "set": list(options.overrides), "text": text}


def _file(path: Path) -> dict[str, str]:
    """A catalog file by its name and its contents."""
    with suppress(OSError):
        return {"file": path.name, "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
    return {"file": path.name, "sha256": ""}


@dataclass(frozen=True, kw_only=True)
class Start:
    """A rank that has met the others; `predicted` is there on rank 0 alone, which writes."""

    scenario: Scenario
    report: DeviceReport
    options: RunOptions
    began: datetime.datetime
    device: torch.device
    rank: int
    predicted: Prediction | None

    def meta(self) -> dict[str, Any]:
        """What rank 0 knows of the run; asked at its end."""
        return provenance(self.scenario, self.report, self.options, self.began)


@contextmanager
def started(scenario: Scenario, report: DeviceReport, options: RunOptions) -> Iterator[Start]:
    """Be a rank of the run: whatever fails inside is reported, and ends this process."""
    device, rank = rank_device(report), int(os.environ["RANK"])
    began = datetime.datetime.now(datetime.UTC)
    with process_group(report.backend, options.timeout, device), fatal(options.out, rank):
        HERE.enter("predict")
        yield Start(
            scenario=scenario,
            report=report,
            options=options,
            began=began,
            device=device,
            rank=rank,
            predicted=predict(scenario, options.out) if rank == 0 else None,
        )
