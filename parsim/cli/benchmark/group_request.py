"""The system and the groups of ranks that the options of `parsim collectives` name."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from parsim.cli.benchmark.sweep_request import read_degrees
from parsim.cli.terminal import calibrated
from parsim.errors import InputError

if TYPE_CHECKING:
    from parsim.cluster.hardware import System
    from parsim.sim.benchmark.group_layout import GroupLayout


def measured_machine(device: str | None) -> dict[str, Any]:
    """What this machine can measure on; `device` is a kind of it, or a calibrated file."""
    from parsim.launch.measuring import collectives_hardware

    return collectives_hardware(None if _calibrated_file(device) else device)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRequest:
    """What the options say of the system and of the groups; None where they say nothing."""

    system: str | None
    device: str | None
    nodes: int
    ranks: int | None
    group: str | None
    at_once: int | None

    def layout(self, machine: dict[str, Any] | None) -> GroupLayout:
        """The groups on their system, or on the `machine` that measures them.

        Raises:
            InputError: no system to be known, or one that the machine cannot measure.
        """
        from parsim.sim.benchmark.group_layout import axis_layout, spread_layout

        system, ranks = _system(self.system, self.device, machine), self.ranks
        if self.group is not None:
            return axis_layout(system, self.nodes, read_degrees(self.group))
        if machine is not None:
            system, usual = _on_machine(system, machine)
            ranks = usual if ranks is None else ranks
        return spread_layout(system, self.nodes, ranks, self.at_once or 1)


def _calibrated_file(device: str | None) -> Path | None:
    """The file of `parsim calibrate` that --device names, if it names one and no kind."""
    file = Path(device or "")
    return file if file.suffix in (".yaml", ".yml") else None


def _system(name: str | None, device: str | None, machine: dict[str, Any] | None) -> System:
    """The system that is named, else the calibrated file's, else this machine's."""
    from parsim.cluster.reader import load_catalog

    file = _calibrated_file(device)
    if device is not None and file is None and machine is None:
        raise InputError(
            f"--device {device}: without --measure it must be a file of `parsim calibrate` (.yaml)"
        )
    catalog = load_catalog([file] if file else [])
    if name is not None:
        return catalog.system(name)
    return catalog.system(_system_of_machine(machine) if file is None else _system_of_file(file))


def _system_of_file(file: Path) -> str:
    """The system of a calibrated file, which must hold links."""
    name = calibrated(file).get("cluster.system")
    if name is None:
        raise InputError(f"{file} holds no links: it was calibrated on one rank; name a --system")
    return name


def _system_of_machine(machine: dict[str, Any] | None) -> str:
    """The system of the catalog that has this machine's devices."""
    if machine is None:
        raise InputError("name a --system (see `parsim catalog systems`), or use --measure")
    if machine["system"] is None:
        raise InputError(
            f"no system of the catalog has the GPU {machine['hardware']}; name the nearest one "
            f"with --system, or calibrate and use --device FILE"
        )
    return str(machine["system"])


def _on_machine(system: System, machine: dict[str, Any]) -> tuple[System, int]:
    """The system with as many devices as this machine has, and how many ranks are usual on it."""
    if (system.library == "gloo") != (machine["backend"] == "gloo"):
        raise InputError(
            f"--system {system.id} uses {system.library}, this machine {machine['backend']}; "
            f"leave out --system to predict this machine, or --measure"
        )
    if machine["most_ranks"] < 2:
        raise InputError(
            f"--measure: a collective needs two ranks, and this machine has one "
            f"{machine['hardware']}; use --device cpu"
        )
    devices = max(machine["count"], 2)
    usual = 2 if machine["kind"] == "cpu" else devices
    return system.of_devices(devices), usual
