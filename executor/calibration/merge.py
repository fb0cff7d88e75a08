"""Joins two calibrations of one device into one: all their measured points, constants fitted anew.

A file holds no times but ratios, so a time is ratio x what the file's own constants model. Where
both measured the same shape, the newer file counts: by its latest day, on equal days the one that
is named last (it need not be the better one, but it is the machine as it is now). What whole layers
add is written as lines; the merged line is fitted through both.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from executor.calibration.cases import kinds
from executor.calibration.cases.samples import Kernels, Sample, link_time, link_times
from executor.calibration.cases.usual_sizes import usual_workloads
from executor.calibration.cases.workloads import distinct_cases, memory_cases
from executor.calibration.fitting.catalog_file import catalog_text, with_units
from executor.calibration.fitting.constants import DEVICE_CONSTANTS, fit_device, fit_system
from executor.calibration.fitting.curves import curves_of, system_document
from executor.calibration.fitting.deviations import points, residuals
from executor.calibration.fitting.earlier_file import (
    Calibration,
    compatible,
    part_of,
    read_calibration,
    where_of,
)
from executor.calibration.fitting.merged_lines import merged_lines
from executor.calibration.timing.losses import Losses
from executor.faults.parent import command
from parsim.cluster.hardware import Device, Measured, System
from parsim.cluster.measured.layer_kinds import is_layer_kind
from parsim.cluster.reader import load_catalog
from parsim.cost.software import software
from parsim.plan.precision import precision

NAMES = {
    **dict.fromkeys(kinds.CONVOLUTIONS, ("m", "n", "k")),
    kinds.GEMM: ("m", "n", "k"),
    **dict.fromkeys((kinds.FORWARD, kinds.BACKWARD), ("flops", "seq_len")),
}
"""Coordinates by kind; the others have bytes."""


def merge(first: Calibration, second: Calibration) -> tuple[str, dict[str, Any]]:
    """The merged file's text, and a document of its constants, residuals and points.

    Raises:
        InputError: the calibrations do not belong together.
    """
    old, new = (first, second) if first.latest <= second.latest else (second, first)
    notes = [*_compatible(first, second), *_recorded(old)]
    kernels = _kernels(new)
    launches = _launches(kernels)
    samples = _joined(*(_kernel_samples(file, kernels, launches) for file in (old, new)))
    device, modelled = _merged_device(old, new, kernels, samples)
    system, timed, links = _merged_system(old, new, device)
    text = catalog_text(device, system, new.base, _listed(old, new))
    return text, {
        "device": with_units({name: getattr(device, name) for name in DEVICE_CONSTANTS}),
        "system": system and system_document(system, timed),
        "residuals": {"kernels": residuals(samples, modelled), **links},
        "merged": _origins(old, new, _points(device)),
        "notes": list(dict.fromkeys(notes)),
    }


def _merged_device(
    old: Calibration, new: Calibration, kernels: Kernels, samples: Sequence[Sample]
) -> tuple[Device, list[float]]:
    """The device fitted to the samples of both, and the seconds that its constants give them."""
    fitted = replace(
        fit_device(load_catalog().device(new.base[0]), samples, kernels),
        id=new.device.id,
        name=new.device.name,
        core_product=new.device.core_product or old.device.core_product,
    )
    modelled = kernels.times(fitted, samples).tolist()
    both = {**points(samples, modelled), **merged_lines(old.device, new.device)}
    return replace(fitted, residuals=both, **_certainty(old.device, new.device, both)), modelled


def _recorded(old: Calibration) -> Iterator[str]:
    """What becomes of recorded runs of the older file."""
    if old.device.steps:
        yield (
            f"{len(old.device.steps)} recorded runs corrected {old.file}; they are not of the "
            f"merged constants: give them again with --from"
        )


def _compatible(first: Calibration, second: Calibration) -> list[str]:
    """Notes about what differs between both; refuses what does not belong together."""
    notes: list[str] = []
    for source in second.sources:
        notes += compatible(
            first, part_of(source, "name"), part_of(source, "used"), part_of(source, "torch")
        )
    return notes


def _origins(old: Calibration, new: Calibration, points_of_both: int) -> dict[str, Any]:
    """Where the merged file's points are from, and how many they are."""
    counts = {"older": _points(old.device), "newer": _points(new.device), "merged": points_of_both}
    return {"sources": _listed(old, new).split("; "), "points": counts}


def _certainty(old: Device, new: Device, residuals: Measured) -> dict[str, Any]:
    """How sure the merged file is: as the less sure of both, and what neither has measured."""
    spreads = {
        kind: max(device.spreads.get(kind, 0.0) for device in (old, new))
        for kind in (*old.spreads, *new.spreads)
    }
    missing = {
        kind: why
        for kind, why in {**old.unmeasured, **new.unmeasured}.items()
        if kind not in residuals and f"{kind}_forward" not in residuals
    }
    return {"spreads": spreads, "unmeasured": missing}


def _listed(old: Calibration, new: Calibration) -> str:
    return "; ".join(sorted({*old.sources, *new.sources}))


def _points(device: Device) -> int:
    """How many measured points a device has."""
    return sum(map(len, device.residuals.values()))


def _kernels(calibration: Calibration) -> Kernels:
    """How the file's kernels are priced: its precision; the bytes are in the points."""
    used, stack = calibration.only("used"), software("executor-cpu")
    return Kernels(precision=used, value=precision(used).activation, software=stack)


def _launches(kernels: Kernels) -> dict[str, float]:
    """Launches of a kind: the file has only bytes."""
    launches: dict[str, float] = {}
    for small in (True, False):
        workloads = usual_workloads("cpu" if small else "cuda", "fp32")
        alone = memory_cases(small, kernels.value, kernels.software)
        for case in (*alone, *distinct_cases(workloads, kernels.software)):
            launches.setdefault(case.kind, case.shape.get("launches", 1.0))
    return launches


def _kernel_samples(
    calibration: Calibration, kernels: Kernels, launches: Mapping[str, float]
) -> list[Sample]:
    """Times of a file's kernels: ratio x model under its own constants."""
    bare = replace(calibration.device, residuals={})
    samples = []
    for kind, rows in calibration.device.residuals.items():
        if is_layer_kind(kind):
            continue
        for *where, ratio in rows:
            shape = dict(zip(NAMES.get(kind, ("bytes",)), where, strict=True))
            if kind not in NAMES:
                shape["launches"] = launches.get(kind, 1.0)
            seconds = ratio * kernels.time(bare, kind, shape)
            samples.append(Sample(kind=kind, shape=shape, seconds=seconds))
    return samples


def _joined(old: Iterable[Sample], new: Iterable[Sample]) -> list[Sample]:
    """All samples, of equal shapes the newer one, in an order that does not depend on the files."""
    newest = {(sample.kind, tuple(sample.shape.values())): sample for sample in (*old, *new)}
    return [newest[key] for key in sorted(newest)]


def _merged_system(
    old: Calibration, new: Calibration, device: Device
) -> tuple[System | None, list[Sample], dict[str, Any]]:
    """The links of both and their times; the system of the only one that has them, or None."""
    systems = [file.system for file in (old, new) if file.system is not None]
    if not systems:
        return None, [], {"collectives": {}}
    samples = _joined(_link_samples(systems[0]), _link_samples(systems[-1]))
    base = load_catalog().system((new if new.system else old).base[1])
    base = replace(base, devices_per_node=max(system.devices_per_node for system in systems))
    fitted = fit_system(base, samples)
    system = replace(
        fitted,
        id=systems[-1].id,
        name=systems[-1].name,
        device=device,
        interference_rate=fitted.intra.rate,
        rank_spread=systems[-1].rank_spread,
        **{name: getattr(systems[-1], name) for name in Losses._fields},
    )
    system = replace(system, curves=curves_of(system, samples, _listed(old, new)))
    modelled = link_times(system, samples).tolist()
    of_links = {**points(samples, modelled), **merged_lines(systems[0], systems[-1])}
    errors = {"collectives": residuals(samples, modelled)}
    return replace(system, residuals=of_links), samples, errors


def _link_samples(system: System) -> list[Sample]:
    bare = replace(system, residuals={})
    samples = []
    for kind in kinds.LINKS:
        for point in system.residuals.get(kind, ()):
            shape = dict(zip(("bytes", "ranks"), where_of(kind, point), strict=False))
            seconds = point[-1] * link_time(bare, kind, shape)
            samples.append(Sample(kind=kind, shape=shape, seconds=seconds))
    return samples


def main() -> int:
    """Merge two files into a third and print the document."""
    parser = argparse.ArgumentParser(prog="python -m executor.calibration.merge")
    parser.add_argument("files", type=Path, nargs=2, help="files of `parsim calibrate`")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    return command(lambda: _write(options.out, options.files))


def _write(out: Path, files: Sequence[Path]) -> None:
    text, document = merge(*(read_calibration(file) for file in files))
    out.write_text(text, encoding="utf-8")
    sys.stdout.write(json.dumps(document))


if __name__ == "__main__":
    raise SystemExit(main())
