"""Measures this machine as one of several ranks; rank 0 fits the constants and writes the files."""

from __future__ import annotations

import datetime
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path

import torch
import torch.distributed as dist

from executor.calibration.cases.samples import Sample
from executor.calibration.cases.setting import Setting
from executor.calibration.choice.belief import Shape
from executor.calibration.choice.candidates import choice
from executor.calibration.choice.choose import Choice
from executor.calibration.choice.link_needs import link_needs
from executor.calibration.choice.spread import shapes_known
from executor.calibration.conclude import Measurements, conclude
from executor.calibration.fitting.earlier_file import compatible, read_calibration
from executor.calibration.outcome import achieved, kernel_gaps, link_gaps
from executor.calibration.time_layers import time_layers
from executor.calibration.timing.bench import Bench, TimedKernels, measure, updates_again
from executor.calibration.timing.links import link_choice, link_samples
from executor.calibration.timing.losses import Losses, losses, mean_losses
from executor.calibration.timing.pace import Pace
from executor.devices.machine import hardware_name, rank_device
from executor.devices.mesh import process_group
from parsim.cluster.reader import load_catalog

LINK_MEMORY = 0.1
"""Share of a device's memory for the arrays of one collective."""
SHARES = {"kernels": 0.32, "layers": 0.35, "links": 0.15}
"""Shares of the seconds given; the rest is for starting ranks, making inputs, and the fit. Layers
have most: one of them that is timed as a whole corrects all of its kernels, and what lies between
them."""
PARTS = ("links", "kernels", "layers", "fit")
"""In this order; the document says how many seconds each took."""
LAST = {"kernels": 0.55, "layers": 0.95}
"""After this share of them a part begins nothing more, once it has had its own seconds."""


def known_from(old: Path | None) -> frozenset[Shape]:
    """What an earlier calibration has measured and the merge will keep."""
    earlier = None if old is None else read_calibration(old)
    return shapes_known(earlier, torch.__version__, datetime.date.today())


def choice_for(setting: Setting, seconds: float, known: frozenset[Shape] = frozenset()) -> Choice:
    """Which kernels are timed in a calibration of so many seconds."""
    return choice(setting, SHARES["kernels"] * seconds, known)


def links_for(setting: Setting, seconds: float, known: frozenset[Shape] = frozenset()) -> Choice:
    """Which collectives of which groups, and messages between two ranks, are timed."""
    system = setting.base or load_catalog().system("cpu")
    memory = LINK_MEMORY * setting.device.memory
    cpu = setting.report.kind == "cpu"
    share = SHARES["links"] * seconds
    return link_choice(
        system,
        setting.groups,
        memory=memory,
        seconds=share,
        cpu=cpu,
        known=known,
        needs=link_needs(setting.targets, system),
    )


def mergeable(old: Path, setting: Setting) -> list[str]:
    """Notes on an earlier calibration, if what is measured now can be merged with it.

    Raises:
        InputError: another device or precision, or no calibration.
    """
    name = hardware_name(setting.report)
    return compatible(read_calibration(old), name, setting.kernels.precision, torch.__version__)


@dataclass(slots=True)
class Laps:
    """When a calibration of so many seconds began, and when each of its PARTS ended."""

    seconds: float
    began: float = field(default_factory=time.perf_counter)
    ends: list[float] = field(default_factory=list)

    def limit(self, part: str) -> float:
        """Seconds that a part may take."""
        return SHARES[part] * self.seconds

    def until(self, part: str) -> float:
        """When a part begins nothing more, once it has had its own seconds."""
        return self.began + LAST[part] * self.seconds

    def end(self) -> None:
        """A part, or the start before the first, is over."""
        self.ends.append(time.perf_counter())

    def to_json(self) -> dict[str, float]:
        """Seconds of each part."""
        lasted = (end - start for start, end in pairwise(self.ends))
        return dict(zip(PARTS, lasted, strict=True))


def calibrate(setting: Setting, out: Path, seconds: float, known: frozenset[Shape]) -> None:
    """One rank's part; rank 0 writes `device.yaml` and `calibration.json` into `out`."""
    device, laps = rank_device(setting.report), Laps(seconds)
    with process_group(setting.report.backend, max(300.0, 10.0 * seconds), device):
        bench = Bench(device, setting.kernels.precision)
        pace = Pace(device)
        pace.now()  # here and below: its quickest time is that of any moment
        laps.end()
        wired = links_for(setting, seconds, known)
        links = _links(bench, wired, laps)
        lost = _losses(setting, bench)
        laps.end()
        picked = choice_for(setting, seconds, known)
        pace.now()
        kernels = _kernels(setting, bench, picked, laps)
        pace.now()
        kernels = _updates_alone(bench, kernels)
        lost += _losses(setting, bench)
        laps.end()
        measured = _measured(setting, kernels, links, mean_losses(lost))
        limit, until = laps.limit("layers"), laps.until("layers")
        session, rank_spread = time_layers(setting, pace, limit, until, measured)
        kernels = _updates_alone(bench, kernels)
        lost += _losses(setting, bench)
        laps.end()
        if kernels is None or measured is None or dist.get_rank() != 0:
            return
        left_out = [
            *session.gaps,
            *kernel_gaps(picked, kernels.left),
            *link_gaps(wired, links, setting.groups, setting.report),
        ]
        measured = replace(
            measured,
            kernels=kernels.samples,
            layers=session.samples,
            gaps=left_out,
            repeated=session.repeated,
            queued=session.queued(),
            rank_spread=rank_spread,
            losses=mean_losses(lost),
            core_product=pace.quickest,
        )
        _write(out, setting, measured, (picked, wired), laps)


def _links(bench: Bench, wired: Choice, laps: Laps) -> list[Sample]:
    """Time collectives and messages; nothing of one rank."""
    if dist.get_world_size() < 2:
        return []
    return list(link_samples(bench, wired, laps.limit("links")))


def _losses(setting: Setting, bench: Bench) -> list[Losses]:
    """What ranks lose to one another now; nothing where they are more than devices, or one."""
    if dist.get_world_size() < 2 or setting.groups.oversubscribed:
        return []
    return [losses(bench)]


def _kernels(setting: Setting, bench: Bench, picked: Choice, laps: Laps) -> TimedKernels | None:
    """Times of the chosen kernels; None on a rank without a device of its own."""
    if dist.get_rank() >= setting.groups.devices:
        return None
    limit, until = laps.limit("kernels"), laps.until("kernels")
    return measure(bench, picked.cases, limit, picked.cost, until)


def _updates_alone(bench: Bench, kernels: TimedKernels | None) -> TimedKernels | None:
    """Time updates again on rank 0, whose kernels count, while all others wait."""
    dist.barrier()
    if kernels is not None and dist.get_rank() == 0:
        kernels = updates_again(bench, kernels)
    dist.barrier()
    return kernels


def _write(
    out: Path, setting: Setting, measured: Measurements, choices: tuple[Choice, Choice], laps: Laps
) -> None:
    """Fit, and write the catalog file and the document; `choices` are kernels' and links'."""
    text, document, fitted = conclude(setting, measured)
    document |= achieved(*choices, setting, fitted, measured)
    laps.end()
    document["groups"] = setting.groups.to_json()
    document["seconds_of"] = laps.to_json()
    (out / "device.yaml").write_text(text, encoding="utf-8")
    (out / "calibration.json").write_text(json.dumps(document), encoding="utf-8")


def _measured(
    setting: Setting,
    kernels: TimedKernels | None,
    links: Sequence[Sample],
    lost: Losses | None,
) -> Measurements | None:
    """What was timed before the layers; None on a rank that timed no kernels."""
    if kernels is None:
        return None
    return Measurements(
        kernels=kernels.samples,
        links=links,
        losses=lost,
        reference=kernels.moments,
        notes=_notes(setting),
    )


def _notes(setting: Setting) -> tuple[str, ...]:
    """What of the groups was left out, and what shares a device."""
    groups, kind = setting.groups, setting.report.kind
    remarks = [groups.unmeasured(kind, shareable=setting.report.shareable)]
    if groups.oversubscribed:
        remarks.append(
            f"{groups.words(kind)}; their collectives are those of a machine that is too "
            f"small, and layers of several ranks were not timed"
        )
    return tuple(remark for remark in remarks if remark)
