"""Whole layers: what the simulator gives them beside what they took, as samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from executor.calibration.cases.samples import Sample
from executor.calibration.cases.setting import CalibrationSetting
from executor.calibration.choice.layer_tasks import SHARDED
from executor.calibration.timing.layers import LayerSample
from parsim.cluster.hardware import Cluster, Device, System
from parsim.cluster.measured.layer_kinds import WAITED
from parsim.cost.job import Job
from parsim.cost.layer.layers import LayerCoster, measured_kind, own_name
from parsim.cost.step.sharded_stages import sharding_times
from parsim.plan import PlanTable


def whole_layers(
    system: System | None,
    device: Device,
    setting: CalibrationSetting,
    layers: Sequence[LayerSample],
) -> tuple[list[float], list[Sample]]:
    """Modelled seconds of measured layers, and the layers as samples over these."""
    modelled = layer_times(system, device, setting, layers)
    bare = [layer._replace(part=layer.part.removesuffix(WAITED)) for layer in layers]
    wholes = layer_times(system, device, setting, bare)
    return modelled, layer_samples(layers, modelled, wholes)


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


def own_samples(layers: Sequence[LayerSample], samples: Sequence[Sample]) -> list[Sample]:
    """The samples, those of blocks under the names of their own make-up.

    Embedding and head are alike enough from model to model, and what sharding adds is of a whole.
    """
    return [
        replace(sample, kind=_own_kind(layers[i // 2], sample.kind))
        for i, sample in enumerate(samples)
    ]


def _own_kind(layer: LayerSample, kind: str) -> str:
    """A sample's kind with the make-up of its layer."""
    name, direction = layer.part.removesuffix(WAITED), kind.rpartition("_")[2]
    block = layer.workload.model.kinds[0]
    if name != block.name:
        return kind
    alike = f"{own_name(name, block.make_up)}{layer.part.removeprefix(name)}"
    return f"{measured_kind(layer.workload.plan, alike)}_{direction}"


def layer_times(
    system: System | None,
    device: Device,
    setting: CalibrationSetting,
    layers: Sequence[LayerSample],
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
        name, waits = layer.part.removesuffix(WAITED), layer.part.endswith(WAITED)
        coster = LayerCoster(job, table)
        alike = [part for part in (*model.ends, *model.blocks) if part.name == name]
        costs = [coster.cost(part) for part in alike]  # of a chain with windows in some the mean
        for passes in ([x.forward for x in costs], [x.backward for x in costs]):
            seconds = (x.exposed if waits else x.seconds for x in passes)
            times.append(sum(float(x[0]) for x in seconds) / len(costs))
    return times
