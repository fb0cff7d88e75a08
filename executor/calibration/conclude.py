"""From measured times to constants, their residuals, and the document that says how good they are.

In this order, each with what the earlier ones left: the links; the device's constants; what each
kernel deviates from them; what whole layers deviate from the sum of their kernels.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from executor.calibration.curves import curves_of
from executor.calibration.deviations import lines, points, residuals
from executor.calibration.file import catalog_text, hardware_name, source_text, with_units
from executor.calibration.fit import (
    CHECKS,
    DEVICE_CONSTANTS,
    fit_device,
    fit_system,
    system_constants,
)
from executor.calibration.groups import RankGroups
from executor.calibration.layers import SHARDED, LayerSample
from executor.calibration.sample import Kernels, Sample, link_times
from executor.calibration.targets import Target
from executor.calibration.workloads import Workload
from executor.mesh import DeviceReport
from parsim.cluster.hardware import Cluster, Curve, Device, System
from parsim.cost.job import Job
from parsim.cost.layers import WAITED, LayerCoster, split_of
from parsim.cost.sharded import Wire
from parsim.cost.sharding import DataParallel
from parsim.cost.stages import layer_counts, stage_parameters
from parsim.plan import PlanTable

SCHEMA_VERSION = 1
DRIFT = 0.03
"""A reference product that moved by more than this makes a note: the clock was not steady."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Everything timed on one machine; `reference` is the same product at three moments."""

    kernels: Sequence[Sample]
    links: Sequence[Sample]
    reference: tuple[float, ...]
    notes: tuple[str, ...]
    layers: Sequence[LayerSample] = ()
    interference: float | None = None

    @property
    def drift(self) -> float:
        """How much longer the slowest reference product took than the fastest."""
        return max(self.reference) / min(self.reference) - 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What is calibrated: the entries it starts from, the workloads, and how they are priced.

    `targets` are the plans that the calibration is for, `workloads` those whose layers are timed,
    `groups` those whose collectives are.
    """

    report: DeviceReport
    device: Device
    system: System | None
    kernels: Kernels
    workloads: tuple[Workload, ...]
    targets: tuple[Target, ...]
    groups: RankGroups

    @property
    def base(self) -> System | None:
        """The catalog's system with as many devices a node as ranks are timed together."""
        if self.system is None:
            return None
        return replace(self.system, devices_per_node=max(self.report.count, self.groups.world, 2))

    @property
    def names(self) -> tuple[str, str]:
        """Ids of the new entries. A GPU keeps its id as a start: software factors go by that."""
        base = self.device.id
        device = "my-cpu" if base == "cpu" else f"{base}-mine"
        return device, f"{device}-node"


def conclude(chosen: Setting, measured: Measured) -> tuple[str, dict[str, Any]]:
    """Fit the constants; the catalog file's text, and the document without the seconds it took."""
    name = hardware_name(chosen.report)
    device = replace(
        fit_device(chosen.device, measured.kernels, chosen.kernels), id=chosen.names[0], name=name
    )
    source = source_text(name, chosen.kernels.precision, measured.drift)
    system = _system(chosen, measured, name, device, source)
    of_kernels = list(map(float, chosen.kernels.times(device, measured.kernels)))
    of_links = _predicted_links(system, measured.links)
    device = replace(device, residuals=points(measured.kernels, of_kernels))
    if system is not None:
        system = replace(system, residuals=points(measured.links, of_links))
    of_layers = layer_times(system or chosen.system, device, chosen, measured.layers)
    wholes = layer_times(system or chosen.system, device, chosen, [
        one._replace(part=one.part.removesuffix(WAITED)) for one in measured.layers
    ])  # fmt: skip
    whole = layer_samples(measured.layers, of_layers, wholes)
    own = {**device.residuals, **lines([x for x in whole if not x.kind.startswith(SHARDED)])}
    device = replace(device, residuals=own)
    if system is not None:  # what sharding adds is its links'
        shared = lines([x for x in whole if x.kind.startswith(SHARDED)])
        system = replace(system, device=device, residuals={**system.residuals, **shared})
    base = chosen.device.id, chosen.system.id if chosen.system else ""
    text = catalog_text(device, system, base, source)
    return text, {
        "schema_version": SCHEMA_VERSION,
        "device": _device_document(device, base[0], measured),
        "system": system and {"id": system.id, "from": base[1],
                              "intra.bandwidth_bytes_per_s": system.intra.bandwidth,
                              **with_units(system_constants(system)),
                              "interference": system.interference,
                              "curves": [curve_document(x, measured.links)
                                         for x in system.curves]},
        "residuals": {
            "kernels": residuals(measured.kernels, of_kernels),
            "layers": residuals(whole, of_layers),
            "collectives": residuals(measured.links, of_links) if system else {},
        },
    }  # fmt: skip


def _system(
    chosen: Setting, measured: Measured, name: str, device: Device, source: str
) -> System | None:
    """The system with fitted links; None without links, or where the catalog has no such system."""
    if chosen.base is None or not measured.links:
        return None
    found, lost = fit_system(chosen.base, measured.links), measured.interference
    groups = chosen.groups
    shared = f", {groups.world} ranks share {groups.devices}" if groups.oversubscribed else ""
    return replace(
        found,
        id=chosen.names[1],
        name=f"{name}, {chosen.report.backend}{shared}",
        device=device,
        curves=curves_of(found, measured.links, f"{source}{shared}"),
        interference=found.interference if lost is None else lost,
    )


def curve_document(one: Curve, samples: Sequence[Sample]) -> dict[str, Any]:
    """A curve for the document, and of how many sizes it was drawn."""
    own = [x for x in samples if (x.kind, x.shape.get("ranks")) == (one.collective, one.ranks)]
    return {
        "collective": one.collective, "ranks": one.ranks, "nodes": one.nodes,
        "latency_s": one.latency, "bandwidth_bytes_per_s": one.bandwidth, "ramp_s": one.ramp,
        "least_bytes": one.least, "most_bytes": one.most, "n": len(own),
    }  # fmt: skip


def layer_samples(
    layers: Sequence[LayerSample], modelled: Sequence[float], wholes: Sequence[float]
) -> list[Sample]:
    """Forward and backward of each layer as samples, whose coordinate is the modelled time.

    Of waits, the modelled time of the collectives beside the measured share of the whole that is
    modelled. Empty where the layers could not be priced.
    """
    found = []
    for i, (seconds, whole) in enumerate(zip(modelled, wholes, strict=True)):
        one = layers[i // 2]
        name = f"{split_of(one.workload.plan)}{one.part}"
        direction, lasted = (("forward", one.forward), ("backward", one.backward))[i % 2]
        lasted *= whole if one.part.endswith(WAITED) else 1.0
        found.append(Sample(kind=f"{name}_{direction}", shape={"seconds": seconds}, seconds=lasted))
    return found


def layer_times(
    system: System | None, device: Device, chosen: Setting, layers: Sequence[LayerSample]
) -> list[float]:
    """Seconds that the simulator gives the layers, forward and backward in turn.

    Where waits were measured, those of the layers' collectives.
    """
    if system is None:
        return []
    system, software = replace(system, device=device), chosen.kernels.software
    found: list[float] = []
    for one in layers:
        model = one.workload.model
        job = Job(model=model, cluster=Cluster(system=system, num_nodes=1), software=software)
        table = PlanTable.of([one.workload.plan])
        if one.part.startswith(SHARDED):
            found += sharding_times(job, table)
            continue
        parts = {part.name: part for part in (model.embedding, model.layers[0], model.head)}
        cost = LayerCoster(job, table).cost(parts[one.part.removesuffix(WAITED)])
        for way in (cost.forward, cost.backward):
            found.append(float((way.exposed if one.part.endswith(WAITED) else way.seconds)[0]))
    return found


def sharding_times(job: Job, table: PlanTable) -> list[float]:
    """Seconds that the simulator gives ZeRO-3's collectives in one forward and one backward."""
    data, counts = DataParallel.of(job, table), layer_counts(job.model, (job.model.num_layers,))
    parameters = stage_parameters(job.model, table, counts)
    gathered = Wire.of(data, data.gather, counts, parameters).whole
    reduced = Wire.of(data, data.scatter, counts, parameters).whole
    return [float(gathered[0, 0]), float((gathered + reduced)[0, 0])]


def _predicted_links(system: System | None, samples: Sequence[Sample]) -> list[float]:
    if system is None:
        return []
    return list(map(float, link_times(system, samples)))


def _device_document(device: Device, base: str, measured: Measured) -> dict[str, Any]:
    notes = [f"not in the constants, only in their own residuals: {', '.join(CHECKS)}",
             *measured.notes]  # fmt: skip
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
