"""Whether a prediction is of the hardware that was measured, and what of it nobody measured.

Both are read from the `meta` of timelines. A prediction says `device`, `device_kind` ("cpu" or
"cuda") and `uncalibrated`; a measurement `device_kind`, `device_names` and `shared_devices`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

_KINDS: Final = {"cpu": "CPU cores", "cuda": "GPUs"}


def unlike(predicted: Mapping[str, Any], measured: Mapping[str, Any]) -> str:
    """Why times of the two cannot be compared; empty where they can, or nothing is known."""
    kinds = [meta.get("device_kind") for meta in (predicted, measured)]
    if all(kinds) and kinds[0] != kinds[1]:
        first, second = (_KINDS.get(str(kind), str(kind)) for kind in kinds)
        return (
            f"predicted for other hardware: {first} ({predicted.get('system')}), run on {second}; "
            f"predict with a file of parsim calibrate (--device), or another cluster.system"
        )
    if measured.get("shared_devices"):
        return f"{measured['shared_devices']}; the prediction gives each rank a device of its own"
    names = [str(name) for name in measured.get("device_names", ())]
    device = str(predicted.get("device", ""))
    if kinds == ["cuda", "cuda"] and names and uncalibrated(predicted):
        words = {word for name in names for word in name.lower().replace("-", " ").split()}
        if device.split("-")[0] not in words:
            return (
                f"predicted for other hardware: {device}, run on {', '.join(sorted(set(names)))}; "
                f"predict with a file of parsim calibrate (--device), or another cluster.system"
            )
    return ""


def uncalibrated(predicted: Mapping[str, Any]) -> tuple[str, ...]:
    """Device and system of a prediction whose constants are the catalog's alone."""
    return tuple(str(name) for name in predicted.get("uncalibrated", ()))


def error_title(names: tuple[str, ...]) -> str:
    """The head of a column of errors, with what was not calibrated for them."""
    return f"error ({', '.join(names)}: not calibrated)" if names else "error"


def drawn_step(measured: Mapping[str, Any]) -> str:
    """Which step a measured timeline draws, where it is not as long as the step time that it says.

    Empty where the two agree to 1 %, or it does not say.
    """
    drawn, typical = measured.get("recorded_step_s"), measured.get("step_time_s")
    if not drawn or not typical or abs(drawn / typical - 1.0) < 0.01:
        return ""
    count = measured.get("recorded_steps")
    nearest = f", of {count} recorded ones the nearest to the median" if count else ""
    return f"drawn is a step {100 * (drawn / typical - 1.0):+.1f} % off it{nearest}"
