"""The catalog file of a calibration, and the words in it that say where its numbers come from."""

from __future__ import annotations

import datetime
import json
import platform
import re
from collections.abc import Sequence
from pathlib import Path

import torch

from executor.calibration.fit import BYTES, DEVICE_CONSTANTS, RATES, system_constants
from executor.mesh import DeviceReport
from parsim.cluster.hardware import Curve, Device, Measured, System

SCALE = "the catalog's; peaks raised, shares lowered where this machine is faster than that"
SUSTAINED = "kernels were timed one after the other, as a step runs them"


def catalog_text(device: Device, system: System | None, base: tuple[str, str], source: str) -> str:
    """The file that `cluster.catalog` reads: fitted constants over the entries they start from."""
    lines = [f"# Measured by parsim calibrate. {source}", "devices:", f"  {device.id}:"]
    lines += [f"    from: {base[0]}", f"    name: {json.dumps(device.name)}"]
    rates = {name: f"{value / 1e12:.6g}TFLOP/s" for name, value in device.peak_flops.items()}
    lines.append("    peak_flops:")
    lines += [f"      {name}: {_sourced(rate, SCALE)}" for name, rate in rates.items()]
    lines.append(
        f"    memory_bandwidth: {_sourced(f'{device.memory_bandwidth / 1e9:.6g}GB/s', SCALE)}"
    )
    for name in DEVICE_CONSTANTS:
        value = getattr(device, name)
        written = _microseconds(value) if name.endswith("latency") else f"{value:.6g}"
        lines.append(f"    {name}: {_sourced(written, source)}")
    for name in sorted({*RATES, *BYTES} - {*DEVICE_CONSTANTS}):
        lines.append(f"    {name}: {_sourced(f'{getattr(device, name):.6g}', SCALE)}")
    for name in ("gemm_sustained", "attention_sustained"):
        lines.append(f"    {name}: {_sourced(f'{getattr(device, name):.6g}', SUSTAINED)}")
    lines += [*_residual_lines(device.residuals), "    calibrated: true"]
    if system is None:
        return "\n".join(lines) + "\n"
    intra, found = system.intra, system_constants(system)
    lines += ["systems:", f"  {system.id}:", f"    from: {base[1]}"]
    lines += [f"    name: {json.dumps(system.name)}", f"    device: {device.id}"]
    count = _sourced(str(system.devices_per_node), "devices of this machine")
    lines += [f"    devices_per_node: {count}", "    intra:"]
    lines.append(f"      bandwidth: {_sourced(f'{intra.bandwidth / 1e9:.6g}GB/s', source)}")
    lines.append(f"      efficiency: {_sourced(f'{intra.efficiency:.6g}', source)}")
    lines.append(f"      latency: {_sourced(_microseconds(intra.latency), source)}")
    for name in ("call_overhead", "call_overhead_per_rank"):
        lines.append(f"    {name}: {_sourced(_microseconds(found[name]), source)}")
    if system.interference is not None:
        lines.append(f"    interference: {_sourced(f'{system.interference:.6g}', source)}")
    lines += _curve_lines(system.curves)
    lines += [*_residual_lines(system.residuals), "    calibrated: true"]
    return "\n".join(lines) + "\n"


def _curve_lines(curves: Sequence[Curve]) -> list[str]:
    """One line for each; null gives up those of the entry it starts from."""
    if not curves:
        return ["    curves: null"]
    lines = ["    curves:  # latency + S / bandwidth + ramp sqrt(S / 1 MiB), S from least to most"]
    for one in curves:
        figures = {
            "collective": one.collective, "ranks": one.ranks, "nodes": one.nodes,
            "latency": _microseconds(one.latency), "bandwidth": f"{one.bandwidth / 1e9:.6g}GB/s",
            "ramp": _microseconds(one.ramp), "link": f"{one.link / 1e9:.6g}GB/s",
            "least": f"{one.least:.0f}B", "most": f"{one.most:.0f}B",
            "source": json.dumps(one.source),
        }  # fmt: skip
        lines.append("      - {" + ", ".join(f"{k}: {v}" for k, v in figures.items()) + "}")
    return lines


def _residual_lines(residuals: Measured) -> list[str]:
    """Each point on a line of its own: coordinates, then measured over modelled time."""
    if not residuals:
        return []
    lines = ["    residuals:  # coordinates, then measured / modelled"]
    for kind, rows in residuals.items():
        lines.append(f"      {kind}:")
        lines += [f"        - [{', '.join(f'{x:.6g}' for x in row)}]" for row in rows]
    return lines


def _sourced(value: str, source: str) -> str:
    return f"[{value}, {json.dumps(source)}]"


def _microseconds(seconds: float) -> str:
    return f"{seconds * 1e6:.6g}us"


def with_units(constants: dict[str, float]) -> dict[str, float]:
    """Names for JSON: a time's ends in `_s`."""
    timed = ("latency", "overhead", "per_rank")
    return {f"{n}_s" if n.endswith(timed) else n: value for n, value in constants.items()}


def source_text(name: str, used: str, drift: float) -> str:
    """Where a constant comes from: day, hardware, precision, torch, and how steady it was."""
    day = datetime.date.today().isoformat()
    cuda = f", CUDA {torch.version.cuda}" if torch.version.cuda else ""
    return (
        f"measured {day} by parsim calibrate on {name}, {used}, torch {torch.__version__}{cuda}, "
        f"drift {100 * drift:.1f} %"
    )


def hardware_name(report: DeviceReport) -> str:
    """The GPU's or the processor's model."""
    if report.kind == "cuda":
        return report.names[0]
    listed = Path("/proc/cpuinfo")
    text = listed.read_text(encoding="utf-8") if listed.exists() else ""
    found = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return f"one core of {found[1].strip() if found else platform.machine()}"
