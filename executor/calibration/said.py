"""What a calibration says of its choice: first what it expects, afterwards what it got."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from executor.calibration.candidates import shape_of
from executor.calibration.choose import Choice
from executor.calibration.conclude import Measured, Setting
from executor.calibration.fit import fit_device
from executor.calibration.sample import Sample
from executor.calibration.workloads import Case
from parsim.cluster.hardware import Device


def announced(choice: Choice) -> str:
    """How many of how many shapes, and what that is expected to bring; one line."""
    counts = choice.counts()
    chosen, of = (sum(one[key] for one in counts.values()) for key in ("measured", "of"))
    plans = len(choice.weights)
    kept = f"; {len(choice.held)} others are in the file to merge" if choice.held else ""
    return (
        f"note: {chosen} of {of} kernel shapes of {plans} plan{'s' if plans > 1 else ''} are "
        f"measured, in about {choice.cost:.0f} s{kept}; 80 % interval of a step's kernel time "
        f"expected: ±{100 * choice.before:.1f} % -> ±{100 * choice.expected:.1f} %\n"
    )


def achieved(choice: Choice, links: Choice, chosen: Setting, measured: Measured) -> dict[str, Any]:
    """`chosen` and `interval` of a calibration's document."""
    device = fit_device(chosen.device, measured.kernels, chosen.kernels)
    done = [shape_of(Case(x.kind, x.shape)) for x in measured.kernels]
    drift = float(np.std(np.log(measured.reference)))
    after = choice.achieved(scatter(device, chosen, measured.kernels), done, drift)
    return {
        "chosen": {
            **choice.counts(done),
            **links.counts([shape_of(Case(x.kind, x.shape)) for x in measured.links]),
        },
        "interval": {"before": choice.before, "expected": choice.expected, "after": after},
    }


def scatter(
    device: Device, chosen: Setting, samples: Sequence[Sample]
) -> dict[str, tuple[float, int]]:
    """Standard deviation of ln(measured / modelled by the constants) per kind, and the count."""
    logs: dict[str, list[float]] = {}
    for one in samples:
        modelled = chosen.kernels.time(device, one.kind, one.shape)
        logs.setdefault(one.kind, []).append(float(np.log(one.seconds / modelled)))
    return {kind: (float(np.std(found)), len(found)) for kind, found in logs.items()}
