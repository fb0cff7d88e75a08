"""Measures this machine, fits the constants that the simulator reads, and writes them as a catalog.

`parsim calibrate` starts it twice: outside torchrun `python -m executor.calibration` says how many
ranks it wants, and as a rank it measures. All ranks measure at once, because in training none of
them has the machine to itself; the figures are rank 0's. Where ranks share devices, only as many
as there are devices time kernels.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from executor.calibration.calibrate import calibrate, choice_for, known_from, mergeable
from executor.calibration.cases.setting import CalibrationSetting, setting_for
from executor.calibration.laps import SHARES
from executor.calibration.outcome import announced
from executor.devices.machine import probe
from executor.faults.messages import say
from executor.faults.parent import command
from executor.faults.reports import finish


def _split(setting: CalibrationSetting, seconds: float) -> str:
    """How the seconds are divided, one line."""
    named = ", ".join(f"{name} {share * seconds:.0f} s" for name, share in SHARES.items())
    groups = setting.groups.words(setting.report.kind)
    return f"note: of {seconds:.0f} s: {named} ({groups}), the rest for starting and the fit"


def main() -> int:
    """Say how many ranks are wanted (outside torchrun), or measure (inside it)."""
    parser = argparse.ArgumentParser(prog="python -m executor.calibration", description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--scenario", type=Path, action="append", default=[])
    parser.add_argument("--seconds", type=float, default=55.0)
    parser.add_argument("--device")
    parser.add_argument("--base", help="the catalog's device that stands in for this machine's")
    parser.add_argument("--oversubscribe", action="store_true")
    parser.add_argument("--merge", type=Path, help="a calibration that must fit to this one")
    options = parser.parse_args()
    return command(lambda: _work(options))


def _work(options: argparse.Namespace) -> None:
    report = probe(options.device)
    setting = setting_for(
        report, options.scenario, oversubscribe=options.oversubscribe, stated=options.base
    )
    if "RANK" in os.environ:
        calibrate(setting, options.out, options.seconds, known_from(options.merge))
        return
    for text in mergeable(options.merge, setting) if options.merge else ():
        say(f"note: {text}")
    sys.stdout.write(f"{setting.groups.world}\n")
    say(_split(setting, options.seconds))
    picked = choice_for(setting, options.seconds, known_from(options.merge))
    say(announced(picked))


if __name__ == "__main__":
    finish(main())
