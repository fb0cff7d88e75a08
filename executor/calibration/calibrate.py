"""Measures this machine as one of several ranks; rank 0 fits the constants and writes the files."""

from __future__ import annotations

import datetime
import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
import torch.distributed as dist

from executor.calibration.cases.samples import Sample
from executor.calibration.cases.setting import CalibrationSetting
from executor.calibration.choice.belief import Shape
from executor.calibration.choice.candidates import choice
from executor.calibration.choice.choose import Choice
from executor.calibration.choice.link_needs import link_needs
from executor.calibration.choice.spread import shapes_known
from executor.calibration.conclude import conclude
from executor.calibration.fitting.earlier_file import compatible, read_calibration
from executor.calibration.laps import SHARES, Laps
from executor.calibration.measurements import Measurements
from executor.calibration.outcome import achieved, kernel_gaps, link_gaps
from executor.calibration.time_layers import WholeLayers, time_layers
from executor.calibration.timing.bench import Bench, TimedKernels, measure, updates_again
from executor.calibration.timing.links import link_choice, link_samples
from executor.calibration.timing.losses import Losses, losses, mean_losses
from executor.calibration.timing.pace import Pace
from executor.devices.machine import hardware_name, rank_device
from executor.devices.mesh import process_group
from parsim.cluster.reader import load_catalog

LINK_MEMORY = 0.1
"""Share of a device's memory for the arrays of one collective."""


def known_from(old: Path | None) -> frozenset[Shape]:
    """What an earlier calibration has measured and the merge will keep."""
    earlier = None if old is None else read_calibration(old)
    return shapes_known(earlier, torch.__version__, datetime.date.today())


def choice_for(
    setting: CalibrationSetting, seconds: float, known: frozenset[Shape] = frozenset()
) -> Choice:
    """Which kernels are timed in a calibration of so many seconds."""
    return choice(setting, SHARES["kernels"] * seconds, known)


def links_for(
    setting: CalibrationSetting, seconds: float, known: frozenset[Shape] = frozenset()
) -> Choice:
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


def mergeable(old: Path, setting: CalibrationSetting) -> list[str]:
    """Notes on an earlier calibration, if what is measured now can be merged with it.

    Raises:
        InputError: another device or precision, or no calibration.
    """
    name = hardware_name(setting.report)
    return compatible(read_calibration(old), name, setting.kernels.precision, torch.__version__)


def calibrate(
    setting: CalibrationSetting, out: Path, seconds: float, known: frozenset[Shape]
) -> None:
    """One rank's part; rank 0 writes `device.yaml` and `calibration.json` into `out`."""
    device, laps = rank_device(setting.report), Laps(seconds)
    with process_group(setting.report.backend, max(300.0, 10.0 * seconds), device):
        bench = Bench(device, setting.kernels.precision)
        rank = _Rank(setting=setting, bench=bench, pace=Pace(device), laps=laps)
        rank.pace.now()  # here and below: its quickest time is that of any moment
        laps.end()
        wired = links_for(setting, seconds, known)
        links = rank.time_links(wired)
        picked = choice_for(setting, seconds, known)
        kernels = rank.time_kernels(picked)
        measured = _measured(setting, kernels, links, mean_losses(rank.lost))
        layers, kernels = rank.time_layers(measured, kernels)
        if kernels is None or measured is None or dist.get_rank() != 0:
            return
        left_out = [
            *layers.session.gaps,
            *kernel_gaps(picked, kernels.left),
            *link_gaps(wired, links, setting.groups, setting.report),
        ]
        measured = replace(rank.with_layers(measured, layers), kernels=kernels.samples)
        _write(out, setting, replace(measured, gaps=left_out), (picked, wired), laps)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rank:
    """One rank's parts of a calibration, to be timed by all ranks in this order.

    `lost` are what ranks lose to one another after each part.
    """

    setting: CalibrationSetting
    bench: Bench
    pace: Pace
    laps: Laps
    lost: list[Losses] = field(default_factory=list)

    def time_links(self, wired: Choice) -> list[Sample]:
        """Time collectives and messages; nothing of one rank."""
        links: list[Sample] = []
        if dist.get_world_size() > 1:
            links += link_samples(self.bench, wired, self.laps.limit("links"))
        self._end_part()
        return links

    def time_kernels(self, picked: Choice) -> TimedKernels | None:
        """Time the chosen kernels; None on a rank without a device of its own."""
        self.pace.now()
        kernels = None
        if dist.get_rank() < self.setting.groups.devices:
            limit, until = self.laps.limit("kernels"), self.laps.until("kernels")
            kernels = measure(self.bench, picked.cases, limit, picked.cost, until)
        self.pace.now()
        kernels = self._updates_alone(kernels)
        self._end_part()
        return kernels

    def time_layers(
        self, measured: Measurements | None, kernels: TimedKernels | None
    ) -> tuple[WholeLayers, TimedKernels | None]:
        """Time whole layers, and the updates among the kernels again."""
        limit, until = self.laps.limit("layers"), self.laps.until("layers")
        layers = time_layers(self.setting, self.pace, limit, until, measured)
        kernels = self._updates_alone(kernels)
        self._end_part()
        return layers, kernels

    def with_layers(self, measured: Measurements, layers: WholeLayers) -> Measurements:
        """What was measured before the layers, with these and what only the end tells."""
        session = layers.session
        return replace(
            measured,
            layers=session.samples,
            repeated=session.repeated,
            queued=session.queued(),
            rank_spread=layers.rank_spread,
            losses=mean_losses(self.lost),
            core_product=self.pace.quickest,
        )

    def _updates_alone(self, kernels: TimedKernels | None) -> TimedKernels | None:
        """Time updates again on rank 0, whose kernels count, while all others wait."""
        dist.barrier()
        if kernels is not None and dist.get_rank() == 0:
            kernels = updates_again(self.bench, kernels)
        dist.barrier()
        return kernels

    def _end_part(self) -> None:
        """See what ranks lose to one another now, unless they are more than devices, or one."""
        if dist.get_world_size() > 1 and not self.setting.groups.oversubscribed:
            self.lost.append(losses(self.bench))
        self.laps.end()


def _write(
    out: Path,
    setting: CalibrationSetting,
    measured: Measurements,
    choices: tuple[Choice, Choice],
    laps: Laps,
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
    setting: CalibrationSetting,
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
        reference=tuple(kernels.moments),
        notes=_notes(setting),
    )


def _notes(setting: CalibrationSetting) -> tuple[str, ...]:
    """What of the groups was left out, and what shares a device."""
    groups, kind = setting.groups, setting.report.kind
    remarks = [groups.unmeasured(kind, shareable=setting.report.shareable)]
    if groups.oversubscribed:
        remarks.append(
            f"{groups.words(kind)}; their collectives are those of a machine that is too "
            f"small, and layers of several ranks were not timed"
        )
    return tuple(remark for remark in remarks if remark)
