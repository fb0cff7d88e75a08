"""What is calibrated, and the catalog entries that a calibration starts from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from executor.calibration.cases.rank_groups import RankGroups, rank_groups
from executor.calibration.cases.samples import Kernels
from executor.calibration.cases.targets import Target, of_scenario, of_workloads, whole_layers
from executor.calibration.cases.usual_sizes import usual_workloads
from executor.calibration.cases.workloads import (
    TimedCase,
    Workload,
    distinct_cases,
    memory_cases,
)
from executor.devices.machine import DeviceReport, base_device
from parsim.cluster.hardware import Device, System
from parsim.cluster.reader import load_catalog
from parsim.cost.software import software
from parsim.errors import CatalogError, InputError
from parsim.plan.precision import precision
from parsim.scenario import Scenario, load_scenario


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationSetting:
    """What is calibrated: the entries it starts from, the workloads, and how they are priced.

    `targets` are the plans that the calibration is for, `asked_for` their workloads, `usual`
    those of other sizes, which serve other plans; `groups` are those whose collectives are timed.
    """

    report: DeviceReport
    device: Device
    system: System | None
    kernels: Kernels
    asked_for: tuple[Workload, ...]
    usual: tuple[Workload, ...]
    targets: tuple[Target, ...]
    groups: RankGroups

    @property
    def workloads(self) -> tuple[Workload, ...]:
        """All whose layers and kernels are timed, the targets' first."""
        return (*self.asked_for, *self.usual)

    @property
    def base(self) -> System | None:
        """The catalog's system with as many devices a node as ranks are timed together."""
        if self.system is None:
            return None
        return replace(self.system, devices_per_node=max(self.report.count, self.groups.world, 2))

    @property
    def stand_in(self) -> str:
        """What is said of a device that is not the machine's but stands in for it, or nothing."""
        real = self.report.names[0]
        try:
            known = base_device(self.report)
        except CatalogError:
            known = ""
        if known == self.device.id:
            return ""
        return (
            f"{self.device.id} stands in for {real}: its memory, its prices and all that is not "
            f"among the measured constants are taken for this machine's"
        )

    @property
    def names(self) -> tuple[str, str]:
        """Ids of the new entries. A GPU keeps its id as a start: software factors go by that."""
        base = self.device.id
        device = "my-cpu" if base == "cpu" else f"{base}-mine"
        return device, f"{device}-node"


def setting_for(
    report: DeviceReport,
    scenarios: Sequence[Path] = (),
    *,
    oversubscribe: bool = False,
    stated: str | None = None,
) -> CalibrationSetting:
    """The catalog's entries for this machine, the workloads, with those of plans, and the groups.

    Precision and software are those of the first scenario. `stated` is the catalog's device that
    stands in for one that the catalog lacks.
    """
    catalog = load_catalog()
    base = base_device(report, stated)
    systems = catalog.systems.values()
    system = next((system for system in systems if system.device.id == base), None)
    device = catalog.device(base)
    used, stack = "fp32" if report.kind == "cpu" else "bf16", f"executor-{report.kind}"
    loaded = [load_scenario(path) for path in scenarios]
    asked = _targets_of(scenarios, loaded, device)
    if asked:
        used, stack = asked[0].plan.precision, asked[0].job.software.id
    numbers, usual = precision(used), usual_workloads(report.kind, used)
    kernels = Kernels(precision=numbers.compute, value=numbers.activation, software=software(stack))
    standard = system or catalog.system("cpu")
    return CalibrationSetting(
        report=report,
        device=device,
        system=system,
        kernels=kernels,
        asked_for=whole_layers(asked, device) if asked else usual,
        usual=usual if asked else (),
        targets=asked or of_workloads(usual, standard, device, kernels.software),
        groups=rank_groups(report, loaded, oversubscribe=oversubscribe),
    )


def _targets_of(
    paths: Sequence[Path], scenarios: Sequence[Scenario], device: Device
) -> tuple[Target, ...]:
    """The plans of all scenarios, which were read from these paths."""
    targets: list[Target] = []
    for path, scenario in zip(paths, scenarios, strict=True):
        plans = of_scenario(scenario, device)
        if not plans:
            raise InputError(f"{path}: no plan of its space is legal; see `parsim search`")
        targets += plans
    return tuple(targets)


def cases(setting: CalibrationSetting) -> tuple[TimedCase, ...]:
    """The kernels of all workloads, and sizes that have no layer, each once."""
    software = setting.kernels.software
    small = setting.report.kind == "cpu"
    alone = memory_cases(small, setting.kernels.value, software)
    return (*alone, *distinct_cases(setting.workloads, software))
