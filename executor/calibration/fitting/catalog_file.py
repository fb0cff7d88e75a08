"""The catalog file of a calibration, and the words in it that say where its numbers come from."""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict

import torch

from executor.calibration.fitting.constants import BYTES, DEVICE_CONSTANTS, RATES
from parsim.cluster.hardware import Curve, Device, IntraNode, Measured, System
from parsim.units import written_rate, written_time

SCALE = "the catalog's; peaks raised, shares lowered where this machine is faster than that"
TIMES = ("latency", "overhead", "per_rank", "product")
"""How the names of constants end that are times."""
SUSTAINED = "kernels were timed one after the other, as a step runs them"


def catalog_text(device: Device, system: System | None, base: tuple[str, str], source: str) -> str:
    """The file that `cluster.catalog` reads: fitted constants over the entries they start from."""
    lines = [f"# Measured by parsim calibrate. {source}", *_device_lines(device, base[0], source)]
    if system is not None:
        lines += _system_lines(system, device.id, base[1], source)
    return "\n".join(lines) + "\n"


def _device_lines(device: Device, base: str, source: str) -> Iterator[str]:
    """The device's entry over that of its base."""
    yield from ("devices:", f"  {device.id}:", f"    from: {base}")
    yield f"    name: {json.dumps(device.name)}"
    yield "    peak_flops:"
    for name, value in device.peak_flops.items():
        yield f"      {name}: {_sourced(f'{value / 1e12:.6g}TFLOP/s', SCALE)}"
    yield f"    memory_bandwidth: {_sourced(written_rate(device.memory_bandwidth), SCALE)}"
    yield from _figures(device, DEVICE_CONSTANTS, source)
    yield from _figures(device, sorted({*RATES, *BYTES} - {*DEVICE_CONSTANTS}), SCALE)
    yield from _figures(device, ("gemm_sustained", "attention_sustained"), SUSTAINED)
    if device.core_product is not None:
        yield from _figures(device, ("core_product",), source)
    yield from _residual_lines(device.residuals)
    yield from _evidence_lines(device)
    yield "    calibrated: true"


def _system_lines(system: System, device: str, base: str, source: str) -> Iterator[str]:
    """The system's entry over that of its base, with the device of this id."""
    yield from ("systems:", f"  {system.id}:", f"    from: {base}")
    yield f"    name: {json.dumps(system.name)}"
    yield f"    device: {device}"
    count = _sourced(str(system.devices_per_node), "devices of this machine")
    yield f"    devices_per_node: {count}"
    yield "    intra:"
    yield f"      bandwidth: {_sourced(written_rate(system.intra.bandwidth), source)}"
    for line in _figures(system.intra, ("efficiency", "latency"), source):
        yield f"  {line}"
    yield from _figures(system, ("call_overhead", "call_overhead_per_rank"), source)
    lost = ("interference", "interference_rate", "message_interference")
    known = [name for name in lost if getattr(system, name) is not None]
    shared = ("rank_spread", "memory_contention", "two_way_loss")
    yield from _figures(system, known, source)
    yield from _figures(system, [name for name in shared if getattr(system, name)], source)
    yield from _curve_lines(system.curves)
    yield from _residual_lines(system.residuals)
    yield "    calibrated: true"


def _figures(entry: Device | System | IntraNode, names: Iterable[str], source: str) -> list[str]:
    """One line for each figure of an entry, with its unit if it is a time."""
    lines = []
    for name in names:
        value = getattr(entry, name)
        written = written_time(value) if name.endswith(TIMES) else f"{value:.6g}"
        written = written_rate(value) if name.endswith("_rate") else written
        lines.append(f"    {name}: {_sourced(written, source)}")
    return lines


def _curve_lines(curves: Sequence[Curve]) -> list[str]:
    """One line for each; null gives up those of the entry it starts from."""
    if not curves:
        return ["    curves: null"]
    lines = ["    curves:  # latency + S / bandwidth + ramp sqrt(S / 1 MiB), S from least to most"]
    for curve in curves:
        figures = {
            "collective": curve.collective,
            "ranks": curve.ranks,
            "nodes": curve.nodes,
            "latency": written_time(curve.latency),
            "bandwidth": written_rate(curve.bandwidth),
            "ramp": written_time(curve.ramp),
            "link": written_rate(curve.link),
            "least": f"{curve.least:.0f}B",
            "most": f"{curve.most:.0f}B",
            "source": json.dumps(curve.source),
        }
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


def _evidence_lines(device: Device) -> list[str]:
    """How sure the device is, what of it was not measured, and which runs were recorded."""
    lines = []
    if device.spreads:
        lines.append("    spreads:  # standard deviation of ln(measured / modelled)")
        lines += [f"      {kind}: {spread:.4g}" for kind, spread in device.spreads.items()]
    if device.unmeasured:
        lines.append("    unmeasured:")
        lines += [f"      {kind}: {json.dumps(why)}" for kind, why in device.unmeasured.items()]
    if device.steps:
        lines.append("    steps:  # recorded runs, measured / predicted")
        lines += [f"      - {json.dumps(asdict(run))}" for run in device.steps]
    return lines


def _sourced(value: str, source: str) -> str:
    return f"[{value}, {json.dumps(source)}]"


def with_units(constants: dict[str, float]) -> dict[str, float]:
    """Names for JSON: a time's ends in `_s`."""
    return {f"{n}_s" if n.endswith(TIMES) else n: value for n, value in constants.items()}


def source_text(name: str, used: str, drift: float) -> str:
    """Where a constant comes from: day, hardware, precision, torch, and how steady it was."""
    day = datetime.date.today().isoformat()
    cuda = f", CUDA {torch.version.cuda}" if torch.version.cuda else ""
    return (
        f"measured {day} by parsim calibrate on {name}, {used}, torch {torch.__version__}{cuda}, "
        f"drift {100 * drift:.1f} %"
    )


DRIFT = 0.03
"""A reference product that moved by more than this makes a note: the clock was not steady."""
