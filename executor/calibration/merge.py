"""Joins two calibrations of one device into one: all their measured points, constants fitted anew.

A file holds no times but ratios, so a time is ratio x what the file's own constants model. Where
both measured the same shape, the newer file counts: by its latest day, on equal days the one that
is named last (it need not be the better one, but it is the machine as it is now). What whole layers
add is written as lines; the merged line is fitted through both.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from executor.calibration.conclude import curve_document
from executor.calibration.curves import curves_of
from executor.calibration.deviations import SPAN, lines, points, residuals
from executor.calibration.earlier import (
    Calibration,
    compatible,
    part_of,
    read_calibration,
    where_of,
)
from executor.calibration.file import catalog_text, with_units
from executor.calibration.fit import DEVICE_CONSTANTS, fit_device, fit_system, system_constants
from executor.calibration.layers import SHARDED
from executor.calibration.sample import (
    ALL_GATHER,
    ALL_REDUCE,
    ALL_TO_ALL,
    REDUCE_SCATTER,
    SEND_RECV,
    Kernels,
    Sample,
    link_time,
    link_times,
)
from executor.calibration.workloads import (
    BACKWARD,
    FORWARD,
    GEMM,
    distinct_cases,
    memory_cases,
    spread,
)
from parsim.cluster.hardware import Device, Measured, System
from parsim.cluster.reader import load_catalog
from parsim.cluster.residuals import WHOLE_LIMIT
from parsim.cost.software import software
from parsim.errors import ParsimError
from parsim.plan.record import precision

LINKS = (ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL, SEND_RECV)
NAMES = {GEMM: ("m", "n", "k"), FORWARD: ("flops", "seq_len"), BACKWARD: ("flops", "seq_len")}
"""Coordinates by kind; the others have bytes."""
_LAYERS = re.compile(r"(split_|sequence_)?(block|embedding|head)(_waited)?_(forward|backward)$")


def merge(first: Calibration, second: Calibration) -> tuple[str, dict[str, Any]]:
    """The merged file's text, and a document of its constants, residuals and points.

    Raises:
        InputError: the calibrations do not belong together.
    """
    notes: list[str] = []
    for source in second.sources:
        notes += compatible(first, part_of(source, "name"), part_of(source, "used"),
                            part_of(source, "torch"))  # fmt: skip
    old, new = (first, second) if first.latest <= second.latest else (second, first)
    kernels = _kernels(new)
    launches = _launches(kernels)
    samples = _joined(_kernel_samples(old, kernels, launches),
                      _kernel_samples(new, kernels, launches))  # fmt: skip
    base = load_catalog().device(new.base[0])
    device = fit_device(base, samples, kernels)
    device = replace(device, id=new.device.id, name=new.device.name)
    modelled = list(map(float, kernels.times(device, samples)))
    own = {**points(samples, modelled), **_merged_lines(old.device, new.device)}
    device = replace(device, residuals=own)
    system, timed, links = _merged_system(old, new, device)
    text = catalog_text(device, system, new.base, _listed(old, new))
    return text, {
        "device": with_units({name: getattr(device, name) for name in DEVICE_CONSTANTS}),
        "system": system and {"intra.bandwidth_bytes_per_s": system.intra.bandwidth,
                              **with_units(system_constants(system)),
                              "interference": system.interference,
                              "curves": [curve_document(x, timed) for x in system.curves]},
        "residuals": {"kernels": residuals(samples, modelled), **links},
        "merged": {
            "sources": _listed(old, new).split("; "),
            "points": {"older": _count(old), "newer": _count(new),
                       "merged": sum(map(len, own.values()))},
        },
        "notes": list(dict.fromkeys(notes)),
    }  # fmt: skip


def _listed(old: Calibration, new: Calibration) -> str:
    return "; ".join(sorted({*old.sources, *new.sources}))


def _count(one: Calibration) -> int:
    return sum(map(len, one.device.residuals.values()))


def _kernels(one: Calibration) -> Kernels:
    """How the file's kernels are priced: its precision; the bytes are in the points."""
    used = one.only("used")
    value = precision(used).activation
    return Kernels(precision=used, value=value, software=software("executor-cpu"))


def _launches(kernels: Kernels) -> dict[str, float]:
    """Launches of a kind: the file has only bytes."""
    found: dict[str, float] = {}
    for small in (True, False):
        workloads = spread("cpu" if small else "cuda", "fp32")
        alone = memory_cases(small, kernels.value, kernels.software)
        for case in (*alone, *distinct_cases(workloads, kernels.software)):
            found.setdefault(case.kind, case.shape.get("launches", 1.0))
    return found


def _kernel_samples(
    one: Calibration, kernels: Kernels, launches: Mapping[str, float]
) -> list[Sample]:
    """Times of a file's kernels: ratio x model under its own constants."""
    bare = replace(one.device, residuals={})
    found = []
    for kind, rows in one.device.residuals.items():
        if _LAYERS.match(kind):
            continue
        for *where, ratio in rows:
            shape = dict(zip(NAMES.get(kind, ("bytes",)), where, strict=True))
            if kind not in NAMES:
                shape["launches"] = launches.get(kind, 1.0)
            seconds = ratio * kernels.time(bare, kind, shape)
            found.append(Sample(kind=kind, shape=shape, seconds=seconds))
    return found


def _joined(old: Iterable[Sample], new: Iterable[Sample]) -> list[Sample]:
    """All samples, of equal shapes the newer one, in an order that does not depend on the files."""
    found = {(one.kind, tuple(one.shape.values())): one for one in (*old, *new)}
    return [found[key] for key in sorted(found)]


def _merged_lines(old: Device | System, new: Device | System) -> Measured:
    """Lines of whole layers through the measured range of both files."""
    kinds = [kind for kind in (*old.residuals, *new.residuals)
             if _LAYERS.match(kind) or kind.startswith(SHARDED)]  # fmt: skip
    samples = [
        Sample(kind=kind, shape={"seconds": x}, seconds=ratio * x)
        for kind in sorted(set(kinds))
        for x, ratio in _core(old.residuals.get(kind, ()), new.residuals.get(kind, ()))
    ]
    return lines(samples) if samples else {}


def _core(*files: Sequence[Sequence[float]]) -> list[tuple[float, float]]:
    """Points of lines without what was added at both ends (see `lines`).

    The written points lie on ratio = fixed / x + slope, so that is known but for rounding.
    """
    found = []
    for rows in files:
        if rows:
            inside = [row for row in rows if 1.0 / WHOLE_LIMIT < row[1] < WHOLE_LIMIT]
            table = np.array(inside or rows)
            columns = np.stack([1.0 / table[:, 0], np.ones(len(table))], axis=1)
            (fixed, slope), *_ = np.linalg.lstsq(columns, table[:, 1], rcond=None)
            low, high = rows[0][0] * SPAN, rows[-1][0] / SPAN
            at = [low, *(x for x, _ in rows if low < x < high), high]
            found += [(x, float(fixed / x + slope)) for x in at]
    return sorted(found)


def _merged_system(
    old: Calibration, new: Calibration, device: Device
) -> tuple[System | None, list[Sample], dict[str, Any]]:
    """The links of both and their times; the system of the only one that has them, or None."""
    held = [one.system for one in (old, new) if one.system is not None]
    if not held:
        return None, [], {"collectives": {}}
    samples = _joined(*(_link_samples(held[0]), _link_samples(held[-1])))
    base = load_catalog().system((new if new.system else old).base[1])
    base = replace(base, devices_per_node=max(one.devices_per_node for one in held))
    system = replace(
        fit_system(base, samples), id=held[-1].id, name=held[-1].name, device=device,
        interference=held[-1].interference,
    )  # fmt: skip
    system = replace(system, curves=curves_of(system, samples, _listed(old, new)))
    modelled = list(map(float, link_times(system, samples)))
    own = {**points(samples, modelled), **_merged_lines(held[0], held[-1])}
    found = {"collectives": residuals(samples, modelled)}
    return replace(system, residuals=own), samples, found


def _link_samples(system: System) -> list[Sample]:
    bare = replace(system, residuals={})
    found = []
    for kind in LINKS:
        for point in system.residuals.get(kind, ()):
            shape = dict(zip(("bytes", "ranks"), where_of(kind, point), strict=False))
            seconds = point[-1] * link_time(bare, kind, shape)
            found.append(Sample(kind=kind, shape=shape, seconds=seconds))
    return found


def main() -> int:
    """Merge two files into a third and print the document."""
    parser = argparse.ArgumentParser(prog="python -m executor.calibration.merge")
    parser.add_argument("files", type=Path, nargs=2, help="files of `parsim calibrate`")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    try:
        text, document = merge(*(read_calibration(file) for file in options.files))
    except ParsimError as error:
        sys.stderr.write(f"error: {error}\n")
        return error.exit_code
    options.out.write_text(text, encoding="utf-8")
    sys.stdout.write(json.dumps(document))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
