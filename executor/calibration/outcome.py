"""What a calibration says of its choice: first what it expects, afterwards what it got."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from executor.calibration.cases.rank_groups import RankGroups
from executor.calibration.cases.samples import Sample
from executor.calibration.cases.setting import CalibrationSetting
from executor.calibration.cases.workloads import TimedCase
from executor.calibration.choice.candidates import shape_of
from executor.calibration.choice.choose import Choice
from executor.calibration.gaps import NOT_REPRESENTABLE, TIME_OVER, Gap
from executor.calibration.measurements import Measurements
from executor.devices.machine import DeviceReport
from parsim.cluster.hardware import Device


def announced(choice: Choice) -> str:
    """How many of how many shapes, and what that is expected to bring; one line."""
    count, of = len(choice.measured), len(choice.candidates)
    plans = len(choice.weights)
    kept = f"; {len(choice.known)} others are in the file to merge" if choice.known else ""
    return (
        f"note: {count} of {of} kernel shapes of {plans} plan{'s' if plans > 1 else ''} are "
        f"measured, in about {choice.cost:.0f} s{kept}; 80 % interval of a step's kernel time "
        f"expected: ±{100 * choice.before:.1f} % -> ±{100 * choice.expected:.1f} %"
    )


def achieved(
    choice: Choice,
    links: Choice,
    setting: CalibrationSetting,
    fitted: Device,
    measured: Measurements,
) -> dict[str, Any]:
    """`chosen` and `interval` of a calibration's document.

    Args:
        choice: the kernels that were to be measured.
        links: the collectives and messages that were.
        setting: what is calibrated.
        fitted: the device with its fitted constants, without residuals.
        measured: what was measured of it.
    """
    done = [shape_of(TimedCase(x.kind, x.shape)) for x in measured.kernels]
    after = choice.achieved(scatter(fitted, setting, measured.kernels), done, measured.clock)
    return {
        "chosen": {
            **choice.counts(done),
            **links.counts([shape_of(TimedCase(x.kind, x.shape)) for x in measured.links]),
        },
        "interval": {"before": choice.before, "expected": choice.expected, "after": after},
    }


def scatter(
    device: Device, setting: CalibrationSetting, samples: Sequence[Sample]
) -> dict[str, tuple[float, int]]:
    """Standard deviation of ln(measured / modelled by the constants) per kind, and the count."""
    logs: dict[str, list[float]] = {}
    for sample in samples:
        modelled = setting.kernels.time(device, sample.kind, sample.shape)
        logs.setdefault(sample.kind, []).append(float(np.log(sample.seconds / modelled)))
    return {kind: (float(np.std(of_kind)), len(of_kind)) for kind, of_kind in logs.items()}


def kernel_gaps(choice: Choice, left: Sequence[tuple[TimedCase, str]]) -> list[Gap]:
    """Kernels of the plans that were not measured, together by kind and reason.

    Args:
        choice: what was to be measured.
        left: chosen cases that were not, each with the reason.
    """
    late = {shape_of(case): why for case, why in left}
    shares = choice.weights.mean(axis=0)
    grouped: dict[tuple[str, str], tuple[int, float]] = {}
    for candidate, share in zip(choice.candidates, shares.tolist(), strict=True):
        why = late.get(candidate.shape, candidate.refused)
        if why and share > 0.0:
            key = candidate.shape[0], why
            count, before = grouped.get(key, (0, 0.0))
            grouped[key] = count + 1, before + share
    return [
        Gap(kind=kind, words=f"{count} shapes of {kind}", reason=why, share=share)
        for (kind, why), (count, share) in grouped.items()
    ]


def link_gaps(
    choice: Choice, samples: Sequence[Sample], groups: RankGroups, report: DeviceReport
) -> list[Gap]:
    """Collectives that were chosen and not timed, and groups that this machine does not hold."""
    done = {(sample.kind, tuple(sample.shape.values())) for sample in samples}
    if not groups.sizes:  # one device that ranks cannot share has no links
        return []
    late = Counter(case.kind for case in choice.cases if case.key not in done)
    gaps = [
        Gap(kind=kind, words=f"{count} sizes of {kind}", reason=TIME_OVER)
        for kind, count in late.items()
    ]
    why = f"{NOT_REPRESENTABLE}: this machine has {groups.devices} devices of its kind"
    why += "; --oversubscribe lets ranks share them" if report.shareable else ""
    return gaps + [
        Gap(kind=f"groups of {size} ranks", words=f"collectives of {size} ranks", reason=why)
        for size in groups.left_out
    ]
