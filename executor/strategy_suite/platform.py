"""The machine of a suite, calibrated with the shapes of its cases; what is measured is kept."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from executor.faults.messages import say
from executor.suite.cases import Platform, SuiteCase, before_calibration, calibrated, scenario_text
from executor.suite.predict import scenario_of
from parsim.cluster.reader import load_catalog
from parsim.files import read_json
from parsim.launch import measuring
from parsim.report.writing import write_text


def platform_of(out: Path, folder: Path, cases: Iterable[SuiteCase], seconds: float) -> Platform:
    """The calibrated machine; a calibration that `out` has already is kept.

    Args:
        out: folder of the calibration, `device.yaml` and `calibration.json`.
        folder: where the scenarios of the cases go.
        cases: whose kernels and links are measured.
        seconds: that measuring may take.
    """
    file, document = out / "device.yaml", out / "calibration.json"
    if not document.exists():
        scenarios = []
        for case in cases:
            path = scenario_of(folder, case)
            write_text(path, scenario_text(case, before_calibration("cpu")))
            scenarios.append(path)
        say(f"calibrating for {seconds:g} s")
        measured = measuring.calibrate(file, scenarios=scenarios, seconds=seconds, device="cpu")
        write_text(document, json.dumps(measured, indent=1) + "\n")
    return calibrated("cpu", read_json(document), load_catalog([file]))
