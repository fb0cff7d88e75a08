"""Measures this machine, fits the constants that the simulator reads, and writes them as a catalog.

`parsim calibrate` starts it twice: outside torchrun `python -m executor.calibrate` says how many
ranks it wants, and as a rank it measures. Kernels run on rank 0 alone; two ranks time the links.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from executor.calibration_file import catalog_text, hardware_name, source_text, with_units
from executor.constants import (
    ALL_REDUCE,
    CHECKS,
    DEVICE_CONSTANTS,
    SEND_RECV,
    Kernels,
    Sample,
    fit_device,
    fit_system,
    link_time,
    pair,
    residuals,
    system_constants,
)
from executor.faults import end_with_parent
from executor.mesh import DeviceReport, probe, rank_device
from executor.microbench import Bench, Case, plan_cases, spread_cases
from executor.train import process_group
from parsim.cluster.hardware import Device, System
from parsim.cluster.reader import load_catalog
from parsim.cost.software import software
from parsim.errors import InputError, ParsimError
from parsim.plan.record import precision
from parsim.scenario import load_scenario

SCHEMA_VERSION = 1
REFERENCE = {"cpu": 512, "cuda": 4096}
"""Edge of the square product that is timed at start, middle and end."""
DRIFT = 0.03
"""A reference product that moved by more than this makes a note: the clock was not steady."""
SHARES = {"kernels": 0.6, "links": 0.15}
"""Of the seconds given; the rest is for starting the ranks and for the fit."""
LINK_SIZES = (4 << 10, 64 << 10, 512 << 10, 2 << 20, 8 << 20, 32 << 20)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Everything timed on one machine; `reference` is the same product at three moments."""

    kernels: Sequence[Sample]
    links: Sequence[Sample]
    reference: tuple[float, ...]
    notes: tuple[str, ...]

    @property
    def drift(self) -> float:
        """How much longer the slowest reference product took than the fastest."""
        return max(self.reference) / min(self.reference) - 1.0


def ranks_wanted(report: DeviceReport) -> int:
    """Two ranks where two devices exist or may be shared, else one."""
    return 2 if report.count > 1 or (report.kind == "cuda" and report.shareable) else 1


def base_device(report: DeviceReport, devices: Iterable[str]) -> str:
    """Id of the catalog's device that is most like this machine's.

    Raises:
        InputError: the catalog has no GPU of this name.
    """
    if report.kind == "cpu":
        return "cpu"
    # "NVIDIA A100-SXM4-80GB" has the words a100, sxm and 80gb
    words = set(re.sub(r"\bsxm\d\b", "sxm", report.names[0].lower().replace("-", " ")).split())
    likely = [(len(words & set(id.split("-"))), id) for id in devices if id.split("-")[0] in words]
    if not likely:
        raise InputError(
            f"GPU '{report.names[0]}' is like no device of the catalog; calibrate starts from one "
            f"of: {', '.join(devices)}"
        )
    return max(likely, key=lambda found: found[0])[1]


def measure(bench: Bench, cases: Sequence[Case], base: Device, seconds: float,
            kernels: Kernels) -> tuple[list[Sample], tuple[float, ...], list[str]]:  # fmt: skip
    """Time the cases on this rank, those left out that would take more than their share.

    Returns:
        The samples, the reference product at start, middle and end, and notes.
    """
    share = seconds / (len(cases) + 3)
    edge = REFERENCE[bench.device.type]
    reference = Case("gemm", {"m": edge, "n": edge, "k": edge})
    samples, moments, dropped = [], [bench.sample(reference, share).seconds], 0
    for i, case in enumerate(cases):
        if case.shape and 5.0 * kernels.time(base, case.kind, case.shape) > 3.0 * share:
            dropped += 1
        else:
            samples.append(bench.sample(case, share))
        if i == len(cases) // 2:
            moments.append(bench.sample(reference, share).seconds)
    moments.append(bench.sample(reference, share).seconds)
    notes = (
        [f"{dropped} of {len(cases)} shapes were too long for the time given"] if dropped else []
    )
    return samples, tuple(moments), notes


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What is calibrated: the entries it starts from, the shapes, and how they are priced."""

    report: DeviceReport
    device: Device
    system: System | None
    kernels: Kernels
    cases: tuple[Case, ...]

    @property
    def names(self) -> tuple[str, str]:
        """Ids of the new entries. A GPU keeps its id as a start: software factors go by that."""
        base = self.device.id
        device = "my-cpu" if base == "cpu" else f"{base}-mine"
        return device, f"{device}-node"


def setting(report: DeviceReport, scenario: Path | None) -> Setting:
    """The catalog's entries for this machine, and the spread of shapes with those of a plan."""
    catalog = load_catalog()
    base = base_device(report, tuple(catalog.devices))
    system = next((one for one in catalog.systems.values() if one.device.id == base), None)
    plan_shapes: tuple[Case, ...] = ()
    used, stack = "fp32" if report.kind == "cpu" else "bf16", "executor-cpu"
    if scenario is not None:
        found = load_scenario(scenario)
        plan = found.fixed_plan()
        plan_shapes = tuple(plan_cases(found.job.model, plan))
        used, stack = plan.precision, found.job.software.id
    numbers = precision(used)
    kernels = Kernels(precision=numbers.compute, value=numbers.activation, software=software(stack))
    return Setting(
        report=report, device=catalog.device(base), system=system, kernels=kernels,
        cases=(*plan_shapes, *spread_cases(report.kind)),
    )  # fmt: skip


def calibrate(chosen: Setting, out: Path, seconds: float) -> None:
    """One rank's part; rank 0 writes `device.yaml` and `calibration.json` into `out`."""
    device = rank_device(chosen.report)
    with process_group(chosen.report.backend, max(300.0, 10.0 * seconds)):
        bench = Bench(device, chosen.kernels.precision)
        links = _links(bench, SHARES["links"] * seconds)
        if dist.get_rank() == 0:
            limit = SHARES["kernels"] * seconds
            found = measure(bench, chosen.cases, chosen.device, limit, chosen.kernels)
        dist.barrier()
        if dist.get_rank() == 0:
            samples, moments, notes = found
            measured = Measured(kernels=samples, links=links, reference=moments,
                                notes=tuple(notes))  # fmt: skip
            text, document = conclude(chosen, measured)
            (out / "device.yaml").write_text(text, encoding="utf-8")
            (out / "calibration.json").write_text(json.dumps(document), encoding="utf-8")


def conclude(chosen: Setting, measured: Measured) -> tuple[str, dict[str, Any]]:
    """Fit the constants; the catalog file's text, and the document without the seconds it took."""
    new_device, new_system = chosen.names
    name = hardware_name(chosen.report)
    device = fit_device(chosen.device, measured.kernels, chosen.kernels)
    device = replace(device, id=new_device, name=name)
    system = None
    if measured.links and chosen.system is not None:
        system = fit_system(chosen.system, measured.links)
        system = replace(system, id=new_system, name=f"{name}, {chosen.report.backend}",
                         device=device, devices_per_node=max(chosen.report.count, 2))  # fmt: skip
    kernels = [chosen.kernels.time(device, one.kind, one.shape) for one in measured.kernels]
    links = _predicted_links(system, measured.links)
    base = chosen.device.id, chosen.system.id if chosen.system else ""
    text = catalog_text(device, system, base, source_text(name, chosen.kernels.precision))
    return text, {
        "schema_version": SCHEMA_VERSION,
        "device": _device_document(device, base[0], measured),
        "system": system and {"id": system.id, "from": base[1],
                              "intra.bandwidth_bytes_per_s": system.intra.bandwidth,
                              **with_units(system_constants(system))},
        "residuals": {
            "kernels": residuals(measured.kernels, kernels),
            "collectives": residuals(measured.links, links) if system else {},
        },
    }  # fmt: skip


def _predicted_links(system: System | None, samples: Sequence[Sample]) -> list[float]:
    if system is None:
        return []
    where = pair(system)
    return [link_time(system, where, one.kind, one.shape) for one in samples]


def _device_document(device: Device, base: str, measured: Measured) -> dict[str, Any]:
    notes = [f"not fitted, only compared: {', '.join(CHECKS)}", *measured.notes]
    if measured.drift > DRIFT:
        notes.append(f"the reference product moved by {100 * measured.drift:.0f} %; the machine "
                     f"was not quiet, calibrate again")  # fmt: skip
    if not measured.links:
        notes.append("links were not measured: this machine has one device that ranks cannot share")
    return {
        "id": device.id,
        "from": base,
        "name": device.name,
        "date": datetime.date.today().isoformat(),
        "torch": torch.__version__,
        **with_units({name: getattr(device, name) for name in DEVICE_CONSTANTS}),
        "reference_s": list(measured.reference),
        "reference_drift": measured.drift,
        "notes": notes,
    }


def _links(bench: Bench, seconds: float) -> list[Sample]:
    if dist.get_world_size() < 2:
        return []
    pairs = [(kind, size) for size in LINK_SIZES for kind in (ALL_REDUCE, SEND_RECV)]
    return [bench.link(kind, size, seconds / len(pairs)) for kind, size in pairs]


def main() -> int:
    """Say how many ranks are wanted (outside torchrun), or measure (inside it)."""
    parser = argparse.ArgumentParser(prog="python -m executor.calibrate", description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--scenario", type=Path)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--device", choices=("cpu", "cuda"))
    options = parser.parse_args()
    if "RANK" in os.environ:
        end_with_parent()
    try:
        report = probe(options.device)
        chosen = setting(report, options.scenario)
        if "RANK" not in os.environ:
            sys.stdout.write(f"{ranks_wanted(report)}\n")
        else:
            calibrate(chosen, options.out, options.seconds)
        return 0
    except ParsimError as error:
        sys.stderr.write(f"error: {error}\n")
        return error.exit_code


if __name__ == "__main__":
    raise SystemExit(main())
