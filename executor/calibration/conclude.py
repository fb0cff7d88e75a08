"""From measured times to constants, their residuals, and the document that says how good they are.

In this order, each with what the earlier ones left: the links; the device's constants; what each
kernel deviates from them; what whole layers deviate from the sum of their kernels.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import log
from typing import Any, NamedTuple

import torch

from executor.calibration.cases.samples import Sample, link_times
from executor.calibration.cases.setting import CalibrationSetting
from executor.calibration.choice.layer_tasks import SHARDED
from executor.calibration.fitting.catalog_file import DRIFT, catalog_text, source_text, with_units
from executor.calibration.fitting.constants import CHECKS, DEVICE_CONSTANTS, fit_device, fit_system
from executor.calibration.fitting.curves import curves_of, system_document
from executor.calibration.fitting.deviations import lines, points, residuals, spreads
from executor.calibration.gaps import by_share, unmeasured_kinds
from executor.calibration.layer_times import own_samples, whole_layers
from executor.calibration.measurements import Measurements
from executor.calibration.timing.layers import LayerSample
from executor.calibration.timing.passes import BUSY
from executor.devices.machine import hardware_name
from parsim.cluster.evidence import CLOCK
from parsim.cluster.hardware import Device, System
from parsim.cluster.measured.layer_kinds import OF_MAKE_UP, WAITED

SCHEMA_VERSION = 1


class Conclusion(NamedTuple):
    """A catalog file's text, and its document without the seconds that it took.

    `fitted` is the device with its fitted constants, without residuals.
    """

    text: str
    document: dict[str, Any]
    fitted: Device


def conclude(setting: CalibrationSetting, measured: Measurements) -> Conclusion:
    """Fit the constants and say how good they are."""
    source = source_text(hardware_name(setting.report), setting.kernels.precision, measured.drift)
    device, system = constants_of(setting, measured, source)
    fitted, bare = replace(device, residuals={}), system and replace(system, residuals={})
    of_layers, whole = whole_layers(system or setting.system, device, setting, measured.layers)
    kinds_measured = {x.kind.removesuffix("_forward") for x in whole} | {*device.residuals}
    by_make_up = own_samples(measured.layers, whole)
    device, system = _with_layers(device, system, whole, by_make_up)
    device = _with_certainty(device, measured, [whole, by_make_up], kinds_measured)
    system = system and replace(system, device=device)
    base = setting.device.id, setting.system.id if setting.system else ""
    document = {
        "schema_version": SCHEMA_VERSION,
        "device": _device_document(device, setting, measured),
        "unmeasured": [gap.to_json() for gap in by_share(measured.gaps, kinds_measured)],
        "repeated_layers": measured.repeated,
        "system": _system_document(system, base[1], measured),
        "residuals": {
            "kernels": _of_kernels(setting, measured, fitted),
            "layers": residuals(whole, of_layers),
            "collectives": _of_links(measured, bare),
        },
    }
    return Conclusion(catalog_text(device, system, base, source), document, fitted)


def _system_document(
    system: System | None, base: str, measured: Measurements
) -> dict[str, Any] | None:
    """The measured links of the system that was made of `base`; None where there is one rank."""
    if system is None:
        return None
    return {"id": system.id, "from": base, **system_document(system, measured.links)}


def _of_kernels(
    setting: CalibrationSetting, measured: Measurements, device: Device
) -> dict[str, Any]:
    """How far kernels are from what the fitted constants alone say."""
    modelled = setting.kernels.times(device, measured.kernels).tolist()
    return residuals(measured.kernels, modelled)


def _of_links(measured: Measurements, system: System | None) -> dict[str, Any]:
    """How far collectives are from what the fitted links say; nothing where there are none."""
    if system is None:
        return {}
    return residuals(measured.links, link_times(system, measured.links).tolist())


def _with_certainty(
    device: Device, measured: Measurements, whole: Sequence[Sequence[Sample]], kinds: set[str]
) -> Device:
    """The device with how sure it is, what was not measured, and its small product.

    `whole` are the samples of whole layers, by their names and by their make-ups.
    """
    scatters = [sd for layer in measured.layers for sd in layer.scatter]
    around = {k: sd for x in whole for k, sd in spreads(x, scatters[: len(x)]).items()}
    return replace(
        device,
        spreads={**around, CLOCK: measured.clock},
        unmeasured=unmeasured_kinds(measured.gaps, kinds),
        core_product=measured.core_product,
    )


def _with_layers(
    device: Device, system: System | None, whole: Sequence[Sample], by_make_up: Sequence[Sample]
) -> tuple[Device, System | None]:
    """Both with the lines of whole layers: what sharding adds is that of the system's links.

    `by_make_up` are the samples, blocks under the names of their make-ups.
    """
    alike = (x for x in by_make_up if OF_MAKE_UP in x.kind)
    lone = lines([x for x in (*whole, *alike) if not x.kind.startswith(SHARDED)])
    device = replace(device, residuals={**device.residuals, **lone})
    if system is None:
        return device, None
    shared = lines([x for x in whole if x.kind.startswith(SHARDED)])
    return device, replace(system, residuals={**system.residuals, **shared})


def constants_of(
    setting: CalibrationSetting, measured: Measurements, source: str
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


def deviations(
    setting: CalibrationSetting,
    device: Device,
    system: System | None,
    layers: Sequence[LayerSample],
) -> list[float]:
    """|ln(measured / sum of kernels and collectives)| of layers' passes, waits left out."""
    seconds = [layer for layer in layers if not layer.part.endswith(WAITED)]
    _, samples = whole_layers(system or setting.system, device, setting, seconds)
    return [abs(log(sample.seconds / sample.shape["seconds"])) for sample in samples]


def _system(
    setting: CalibrationSetting, measured: Measurements, name: str, device: Device, source: str
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


def _notes(setting: CalibrationSetting, measured: Measurements) -> list[str]:
    """What whoever uses the file should know of how it was measured."""
    notes = [setting.stand_in] if setting.stand_in else []
    notes += [f"not in the constants, only in their own residuals: {', '.join(CHECKS)}"]
    notes += measured.notes
    notes += _unquiet(measured)
    if not measured.links:
        notes.append("links were not measured: this machine has one device that ranks cannot share")
    return notes


def _unquiet(measured: Measurements) -> Iterator[str]:
    """What other users of the machine did to the measurements."""
    if measured.drift > DRIFT:
        yield (
            f"the reference product moved by {100 * measured.drift:.0f} %; the machine "
            f"was not quiet, calibrate again"
        )
    if measured.repeated:
        yield (
            f"{measured.repeated} whole layers were timed again, as their kernels say otherwise; "
            f"the mean counts, the quicker time where other processes use the machine"
        )
    if measured.queued > BUSY:
        yield (
            f"others use this machine's cores: they took up to {100 * measured.queued:.0f} % of a "
            f"layer's time; the least round counts there, or what it would take on a core of its "
            f"own, and layers that wait for other ranks suffer most; calibrate again when it is "
            f"quiet"
        )


def _device_document(
    device: Device, setting: CalibrationSetting, measured: Measurements
) -> dict[str, Any]:
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
