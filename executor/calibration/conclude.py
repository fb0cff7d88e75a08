"""From measured times to constants, their residuals, and the document that says how good they are.

In this order, each with what the earlier ones left: the links; the device's constants; what each
kernel deviates from them; what whole layers deviate from the sum of their kernels.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import log
from typing import Any, NamedTuple

import numpy as np
import torch

from executor.calibration.cases.samples import Sample, link_times
from executor.calibration.cases.setting import Setting
from executor.calibration.choice.layer_tasks import SHARDED
from executor.calibration.fitting.catalog_file import DRIFT, catalog_text, source_text, with_units
from executor.calibration.fitting.constants import CHECKS, DEVICE_CONSTANTS, fit_device, fit_system
from executor.calibration.fitting.curves import curves_of, system_document
from executor.calibration.fitting.deviations import lines, points, residuals, spreads
from executor.calibration.gaps import Gap, by_share, unmeasured_kinds
from executor.calibration.timing.layers import LayerSample
from executor.calibration.timing.losses import Losses
from executor.calibration.timing.passes import BUSY
from executor.devices.machine import hardware_name
from parsim.cluster.evidence import CLOCK
from parsim.cluster.hardware import Cluster, Device, System
from parsim.cluster.measured import WAITED
from parsim.cost.job import Job
from parsim.cost.layer.layers import LayerCoster, measured_kind
from parsim.cost.step.sharded_stages import sharding_times
from parsim.plan import PlanTable

SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurements:
    """Everything timed on one machine, and the `gaps` that were not.

    `reference` is the same product at three moments; `repeated` layers were timed twice,
    and for the share `queued` of a layer's time at most there was no core for it. `rank_spread` is
    the standard deviation, as a share, between ranks that did the same at the same time, `losses`
    what they lose to one another, the mean of several moments; None: nobody shares anything.
    `core_product` are the seconds of a small product on one core at its quickest, None on a GPU.
    """

    kernels: Sequence[Sample]
    links: Sequence[Sample]
    reference: tuple[float, ...]
    notes: tuple[str, ...]
    layers: Sequence[LayerSample] = ()
    gaps: Sequence[Gap] = ()
    repeated: int = 0
    queued: float = 0.0
    rank_spread: float = 0.0
    losses: Losses | None = None
    core_product: float | None = None

    @property
    def drift(self) -> float:
        """How much longer the slowest reference product took than the fastest."""
        return max(self.reference) / min(self.reference) - 1.0

    @property
    def clock(self) -> float:
        """Standard deviation of the reference product's logarithm: what all times share."""
        return float(np.std(np.log(self.reference)))


class Conclusion(NamedTuple):
    """A catalog file's text, and its document without the seconds that it took.

    `fitted` is the device with its fitted constants, without residuals.
    """

    text: str
    document: dict[str, Any]
    fitted: Device


def conclude(setting: Setting, measured: Measurements) -> Conclusion:
    """Fit the constants and say how good they are."""
    source = source_text(hardware_name(setting.report), setting.kernels.precision, measured.drift)
    device, system = constants_of(setting, measured, source)
    fitted = replace(device, residuals={})
    of_kernels = setting.kernels.times(fitted, measured.kernels).tolist()
    bare = replace(system, residuals={}) if system else None
    of_links = link_times(bare, measured.links).tolist() if bare else []
    of_layers, whole = _whole_layers(system or setting.system, device, setting, measured.layers)
    scatters = [sd for layer in measured.layers for sd in layer.scatter][: len(whole)]
    kinds_measured = {x.kind.removesuffix("_forward") for x in whole} | {*device.residuals}
    device, system = _with_layers(device, system, whole)
    device = replace(
        device,
        spreads={**spreads(whole, scatters), CLOCK: measured.clock},
        unmeasured=unmeasured_kinds(measured.gaps, kinds_measured),
        core_product=measured.core_product,
    )
    system = system and replace(system, device=device)
    base = setting.device.id, setting.system.id if setting.system else ""
    text = catalog_text(device, system, base, source)
    document = {
        "schema_version": SCHEMA_VERSION,
        "device": _device_document(device, setting, measured),
        "unmeasured": [gap.to_json() for gap in by_share(measured.gaps, kinds_measured)],
        "repeated_layers": measured.repeated,
        "system": system
        and {"id": system.id, "from": base[1], **system_document(system, measured.links)},
        "residuals": {
            "kernels": residuals(measured.kernels, of_kernels),
            "layers": residuals(whole, of_layers),
            "collectives": residuals(measured.links, of_links) if system else {},
        },
    }
    return Conclusion(text, document, fitted)


def _with_layers(
    device: Device, system: System | None, whole: Sequence[Sample]
) -> tuple[Device, System | None]:
    """Both with the lines of whole layers: what sharding adds is that of the system's links."""
    lone = lines([x for x in whole if not x.kind.startswith(SHARDED)])
    device = replace(device, residuals={**device.residuals, **lone})
    if system is None:
        return device, None
    shared = lines([x for x in whole if x.kind.startswith(SHARDED)])
    return device, replace(system, residuals={**system.residuals, **shared})


def constants_of(
    setting: Setting, measured: Measurements, source: str
) -> tuple[Device, System | None]:
    """Device and system with fitted constants, and what kernels and links deviate from them."""
    name = hardware_name(setting.report)
    device = fit_device(setting.device, measured.kernels, setting.kernels)
    device = replace(device, id=setting.names[0], name=name)
    system = _system(setting, measured, name, device, source)
    of_kernels = setting.kernels.times(device, measured.kernels).tolist()
    of_links = link_times(system, measured.links).tolist() if system else []
    device = replace(device, residuals=points(measured.kernels, of_kernels))
    if system is not None:
        system = replace(system, residuals=points(measured.links, of_links))
    return device, system


def _whole_layers(
    system: System | None, device: Device, setting: Setting, layers: Sequence[LayerSample]
) -> tuple[list[float], list[Sample]]:
    """Modelled seconds of measured layers, and the layers as samples over these."""
    modelled = layer_times(system, device, setting, layers)
    bare = [layer._replace(part=layer.part.removesuffix(WAITED)) for layer in layers]
    wholes = layer_times(system, device, setting, bare)
    return modelled, layer_samples(layers, modelled, wholes)


def deviations(
    setting: Setting, device: Device, system: System | None, layers: Sequence[LayerSample]
) -> list[float]:
    """|ln(measured / sum of kernels and collectives)| of layers' passes, waits left out."""
    seconds = [layer for layer in layers if not layer.part.endswith(WAITED)]
    _, samples = _whole_layers(system or setting.system, device, setting, seconds)
    return [abs(log(sample.seconds / sample.shape["seconds"])) for sample in samples]


def _system(
    setting: Setting, measured: Measurements, name: str, device: Device, source: str
) -> System | None:
    """The system with fitted links; None without links, or where the catalog has no such system."""
    if setting.base is None or not measured.links:
        return None
    fitted, losses = fit_system(setting.base, measured.links), measured.losses
    groups = setting.groups
    shared = f", {groups.world} ranks share {groups.devices}" if groups.oversubscribed else ""
    return replace(
        fitted,
        id=setting.names[1],
        name=f"{name}, {setting.report.backend}{shared}",
        device=device,
        curves=curves_of(fitted, measured.links, f"{source}{shared}"),
        interference_rate=fitted.intra.rate,
        rank_spread=measured.rank_spread,
        **(losses._asdict() if losses else {}),
    )


def layer_samples(
    layers: Sequence[LayerSample], modelled: Sequence[float], wholes: Sequence[float]
) -> list[Sample]:
    """Forward and backward of each layer as samples, whose coordinate is the modelled time.

    Of waits, the modelled time of the collectives beside the measured share of the whole that is
    modelled. Empty where the layers could not be priced.
    """
    samples = []
    for i, (seconds, whole) in enumerate(zip(modelled, wholes, strict=True)):
        layer = layers[i // 2]
        direction, lasted = (("forward", layer.forward), ("backward", layer.backward))[i % 2]
        lasted *= whole if layer.part.endswith(WAITED) else 1.0
        kind = f"{measured_kind(layer.workload.plan, layer.part)}_{direction}"
        samples.append(Sample(kind=kind, shape={"seconds": seconds}, seconds=lasted))
    return samples


def layer_times(
    system: System | None, device: Device, setting: Setting, layers: Sequence[LayerSample]
) -> list[float]:
    """Seconds that the simulator gives the layers, forward and backward in turn.

    Where waits were measured, those of the layers' collectives.
    """
    if system is None:
        return []
    system, software = replace(system, device=device), setting.kernels.software
    times: list[float] = []
    for layer in layers:
        model = layer.workload.model
        job = Job(model=model, cluster=Cluster(system=system, num_nodes=1), software=software)
        table = PlanTable.of([layer.workload.plan])
        if layer.part.startswith(SHARDED):
            times += sharding_times(job, table)
            continue
        parts = {part.name: part for part in (*model.ends, model.kinds[0])}
        cost = LayerCoster(job, table).cost(parts[layer.part.removesuffix(WAITED)])
        for way in (cost.forward, cost.backward):
            times.append(float((way.exposed if layer.part.endswith(WAITED) else way.seconds)[0]))
    return times


def _notes(setting: Setting, measured: Measurements) -> list[str]:
    """What whoever uses the file should know of how it was measured."""
    notes = [setting.stand_in] if setting.stand_in else []
    notes += [f"not in the constants, only in their own residuals: {', '.join(CHECKS)}"]
    notes += measured.notes
    if measured.drift > DRIFT:
        notes.append(
            f"the reference product moved by {100 * measured.drift:.0f} %; the machine "
            f"was not quiet, calibrate again"
        )
    if measured.repeated:
        notes.append(
            f"{measured.repeated} whole layers were timed again, as their kernels say otherwise; "
            f"the mean counts, the quicker time where other processes use the machine"
        )
    if measured.queued > BUSY:
        notes.append(
            f"others use this machine's cores: they took up to {100 * measured.queued:.0f} % of a "
            f"layer's time; the least round counts there, or what it would take on a core of its "
            f"own, and layers that wait for other ranks suffer most; calibrate again when it is "
            f"quiet"
        )
    if not measured.links:
        notes.append("links were not measured: this machine has one device that ranks cannot share")
    return notes


def _device_document(device: Device, setting: Setting, measured: Measurements) -> dict[str, Any]:
    return {
        "id": device.id,
        "from": setting.device.id,
        "name": device.name,
        "date": datetime.date.today().isoformat(),
        "torch": torch.__version__,
        **with_units({name: getattr(device, name) for name in DEVICE_CONSTANTS}),
        "reference_s": list(measured.reference),
        "reference_drift": measured.drift,
        "notes": _notes(setting, measured),
    }
