"""`--device FILE`: predict with what `parsim calibrate` measured."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from parsim.cli import main

SCENARIO = "scenarios/gpt2-small-cpu.yaml"
SYSTEM = """
devices:
  my-cpu: {from: cpu, gemm_efficiency: 0.48, calibrated: true}
systems:
  my-cpu-node: {from: cpu, device: my-cpu, calibrated: true}
"""


def step_time(capsys: pytest.CaptureFixture[str], *words: str) -> float:
    assert main(["simulate", SCENARIO, "--json", *words]) == 0
    return float(json.loads(capsys.readouterr().out)["step_time_s"])


def test_the_files_system_takes_the_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "device.yaml").write_text(SYSTEM)
    slower = step_time(capsys, "--device", str(tmp_path / "device.yaml"))
    assert slower > 1.2 * step_time(capsys)
    assert main(["check", SCENARIO, "--device", str(tmp_path / "device.yaml")]) == 0
    assert "my-cpu-node" in capsys.readouterr().out


def test_a_device_without_a_system(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "device.yaml").write_text(SYSTEM.split("systems:")[0])
    assert step_time(capsys, "--device", str(tmp_path / "device.yaml")) > 1.2 * step_time(capsys)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("devices: {}\n", "has no system or device of its own; write one with: parsim calibrate"),
        ("systems:\n  a: {from: cpu}\n  b: {from: cpu}\n", "holds 2 systems (a, b)"),
        ("speed: 3\n", "unknown field 'speed'"),
    ],
)
def test_files_that_are_no_calibration(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, message: str
) -> None:
    (tmp_path / "device.yaml").write_text(text)
    assert main(["simulate", SCENARIO, "--device", str(tmp_path / "device.yaml")]) == 2
    assert message in capsys.readouterr().err
