"""What a run was: versions, date, command, scenario, calibration, hardware, threads, load.

It stands under `meta` of `run.json`: all that may differ between two equal runs.
"""

from __future__ import annotations

import datetime
import hashlib
import importlib.metadata
import os
import platform
import shlex
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from executor.devices.machine import DeviceReport, hardware_name, nccl_version
from parsim.launch.options import RunOptions
from parsim.scenario import Scenario

PACKAGES = ("parsim-training", "torch", "numpy", "tokenizers", "nvidia-ml-py", "triton")


def provenance(
    scenario: Scenario, report: DeviceReport, options: RunOptions, began: datetime.datetime
) -> dict[str, Any]:
    """What rank 0 knows of the run, at its end; names of hardware, not of the machine."""
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
