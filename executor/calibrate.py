"""Measures this machine, fits the constants that the simulator reads, and writes them as a catalog.

`parsim calibrate` starts it twice: outside torchrun `python -m executor.calibrate` says how many
ranks it wants, and as a rank it measures. All ranks measure at once, because in training none of
them has the machine to itself; the figures are rank 0's. Where ranks share devices, only as many
as there are devices time kernels.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import re
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
import torch.distributed as dist

from executor.calibration.belief import Shape
from executor.calibration.candidates import choice
from executor.calibration.choose import Choice
from executor.calibration.conclude import Measured, Setting, conclude
from executor.calibration.earlier import compatible, read_calibration
from executor.calibration.file import hardware_name
from executor.calibration.groups import rank_groups
from executor.calibration.held import held_shapes
from executor.calibration.kernels import Bench
from executor.calibration.links import interference, link_choice, link_samples
from executor.calibration.said import achieved, announced
from executor.calibration.sample import Kernels
from executor.calibration.targets import Target, of_scenario, of_workloads, whole_layers
from executor.calibration.timing import measure, measure_layers
from executor.calibration.workloads import (
    Case,
    distinct_cases,
    memory_cases,
    spread,
)
from executor.faults import end_with_parent, finish
from executor.mesh import DeviceReport, probe, rank_device
from executor.train import process_group
from parsim.cluster.reader import load_catalog
from parsim.cost.software import software
from parsim.errors import InputError, ParsimError
from parsim.plan.record import precision
from parsim.scenario import load_scenario

LINK_MEMORY = 0.1
"""Of a device's memory for the arrays of one collective."""
SHARES = {"kernels": 0.4, "layers": 0.25, "links": 0.15}
"""Of the seconds given; the rest is for starting the ranks, making inputs, and the fit."""
LAST = {"kernels": 0.62, "layers": 0.92}
"""After this share of them a part begins nothing more, even if the machine is busy."""


def base_device(report: DeviceReport, devices: Iterable[str]) -> str:
    """Id of the catalog's device that is most like this machine's.

    Raises:
        InputError: the catalog has no GPU of this name.
    """
    if report.kind == "cpu":
        return "cpu"
    # "NVIDIA A100-SXM4-80GB" has the words a100, sxm and 80gb
    words = set(re.sub(r"\bsxm\d\b", "sxm", report.names[0].lower().replace("-", " ")).split())
    likely = [(len(words & set(id.split("-"))), id) for id in devices if id.split("-")[0] in words]
    if not likely:
        raise InputError(
            f"GPU '{report.names[0]}' is like no device of the catalog; calibrate starts from one "
            f"of: {', '.join(devices)}"
        )
    return max(likely, key=lambda found: found[0])[1]


def setting(
    report: DeviceReport, scenarios: Sequence[Path] = (), *, oversubscribe: bool = False
) -> Setting:
    """The catalog's entries for this machine, the workloads, with those of plans, and the groups.

    Precision and software are those of the first scenario.
    """
    catalog = load_catalog()
    base = base_device(report, tuple(catalog.devices))
    system = next((one for one in catalog.systems.values() if one.device.id == base), None)
    device, own = catalog.device(base), tuple[Target, ...]()
    used, stack = "fp32" if report.kind == "cpu" else "bf16", f"executor-{report.kind}"
    loaded = [load_scenario(scenario) for scenario in scenarios]
    for scenario, one in zip(scenarios, loaded, strict=True):
        found = of_scenario(one, device)
        if not found:
            raise InputError(f"{scenario}: no plan of its space is legal; see `parsim search`")
        own += found
    if own:
        used, stack = own[0].plan.precision, own[0].job.software.id
    numbers, usual = precision(used), spread(report.kind, used)
    kernels = Kernels(precision=numbers.compute, value=numbers.activation, software=software(stack))
    layered = whole_layers(own, device)
    own = own or of_workloads(usual, system or catalog.system("cpu"), device, kernels.software)
    return Setting(
        report=report, device=device, system=system, kernels=kernels,
        workloads=(*layered, *usual), targets=own,
        groups=rank_groups(report, loaded, oversubscribe=oversubscribe),
    )  # fmt: skip


def cases(chosen: Setting) -> tuple[Case, ...]:
    """The kernels of all workloads, and sizes that have no layer, each once."""
    software = chosen.kernels.software
    small = chosen.report.kind == "cpu"
    alone = memory_cases(small, chosen.kernels.value, software)
    return (*alone, *distinct_cases(chosen.workloads, software))


def held_by(old: Path | None) -> frozenset[Shape]:
    """What an earlier calibration has measured and the merge will keep."""
    earlier = None if old is None else read_calibration(old)
    return held_shapes(earlier, torch.__version__, datetime.date.today())


def choice_for(chosen: Setting, seconds: float, held: frozenset[Shape] = frozenset()) -> Choice:
    """Which kernels are timed in a calibration of so many seconds."""
    return choice(chosen.targets, cases(chosen), chosen.kernels, chosen.device,
                  kind=chosen.report.kind, seconds=SHARES["kernels"] * seconds,
                  held=held)  # fmt: skip


def links_for(chosen: Setting, seconds: float, held: frozenset[Shape] = frozenset()) -> Choice:
    """Which collectives of which groups, and messages between two ranks, are timed."""
    system = chosen.base or load_catalog().system("cpu")
    memory = LINK_MEMORY * chosen.device.memory
    cpu = chosen.report.kind == "cpu"
    share = SHARES["links"] * seconds
    return link_choice(system, chosen.groups, memory=memory, seconds=share, cpu=cpu, held=held)


def mergeable(old: Path, chosen: Setting) -> list[str]:
    """Notes on an earlier calibration, if what is measured now can be merged with it.

    Raises:
        InputError: another device or precision, or no calibration.
    """
    name = hardware_name(chosen.report)
    return compatible(read_calibration(old), name, chosen.kernels.precision, torch.__version__)


@dataclass(slots=True)
class _Stopwatch:
    """Seconds that each part of a calibration took."""

    began: float = field(default_factory=time.perf_counter)
    parts: dict[str, float] = field(default_factory=dict)

    def lap(self, part: str) -> None:
        """A part is over."""
        now = time.perf_counter()
        self.parts[part], self.began = now - self.began, now


def calibrate(chosen: Setting, out: Path, seconds: float, held: frozenset[Shape]) -> None:
    """One rank's part; rank 0 writes `device.yaml` and `calibration.json` into `out`."""
    device, groups, began = rank_device(chosen.report), chosen.groups, time.perf_counter()
    with process_group(chosen.report.backend, max(300.0, 10.0 * seconds)):
        bench, watch = Bench(device, chosen.kernels.precision), _Stopwatch()
        several = dist.get_world_size() > 1
        wired = links_for(chosen, seconds, held)
        links = list(link_samples(bench, wired, SHARES["links"] * seconds)) if several else []
        lost = interference(bench) if several and not groups.oversubscribed else None
        watch.lap("links")
        limit = SHARES["kernels"] * seconds
        picked = choice_for(chosen, seconds, held)
        timed = dist.get_rank() < groups.devices
        until = {part: began + share * seconds for part, share in LAST.items()}
        found = (
            measure(bench, picked.cases, limit, picked.cost, until["kernels"]) if timed else None
        )
        dist.barrier()
        watch.lap("kernels")
        layers, left = measure_layers(bench, chosen, SHARES["layers"] * seconds, until["layers"])
        watch.lap("layers")
        if dist.get_rank() == 0 and found is not None:
            samples, moments, notes = found
            said = (*notes, *left, *_notes(chosen))
            measured = Measured(kernels=samples, layers=layers, links=links, interference=lost,
                                reference=moments, notes=said)  # fmt: skip
            text, document = conclude(chosen, measured)
            document |= achieved(picked, wired, chosen, measured)
            watch.lap("fit")
            document["groups"] = groups.to_json()
            document["seconds_of"] = watch.parts
            (out / "device.yaml").write_text(text, encoding="utf-8")
            (out / "calibration.json").write_text(json.dumps(document), encoding="utf-8")


def _notes(chosen: Setting) -> tuple[str, ...]:
    """What of the groups was left out, and what shares a device."""
    groups, kind = chosen.groups, chosen.report.kind
    said = [groups.unmeasured(kind, shareable=chosen.report.shareable)]
    if groups.oversubscribed:
        said.append(f"{groups.words(kind)}; their collectives are those of a machine that is too "
                    f"small, and layers of several ranks were not timed")  # fmt: skip
    return tuple(one for one in said if one)


def _split(chosen: Setting, seconds: float) -> str:
    """How the seconds are divided, one line."""
    parts = {name: share * seconds for name, share in SHARES.items()}
    named = ", ".join(f"{name} {found:.0f} s" for name, found in parts.items())
    return (
        f"note: of {seconds:.0f} s: {named} ({chosen.groups.words(chosen.report.kind)}), the rest "
        f"for starting and the fit\n"
    )


def main() -> int:
    """Say how many ranks are wanted (outside torchrun), or measure (inside it)."""
    parser = argparse.ArgumentParser(prog="python -m executor.calibrate", description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--scenario", type=Path, action="append", default=[])
    parser.add_argument("--seconds", type=float, default=55.0)
    parser.add_argument("--device")
    parser.add_argument("--oversubscribe", action="store_true")
    parser.add_argument("--merge", type=Path, help="a calibration that must fit to this one")
    options = parser.parse_args()
    if "RANK" in os.environ:
        end_with_parent()
    try:
        report = probe(options.device)
        chosen = setting(report, options.scenario, oversubscribe=options.oversubscribe)
        if "RANK" not in os.environ:
            for said in mergeable(options.merge, chosen) if options.merge else ():
                sys.stderr.write(f"note: {said}\n")
            sys.stdout.write(f"{chosen.groups.world}\n")
            sys.stderr.write(_split(chosen, options.seconds))
            picked = choice_for(chosen, options.seconds, held_by(options.merge))
            sys.stderr.write(announced(picked))
        else:
            calibrate(chosen, options.out, options.seconds, held_by(options.merge))
        return 0
    except ParsimError as error:
        sys.stderr.write(f"error: {error}\n")
        return error.exit_code


if __name__ == "__main__":
    finish(main())
