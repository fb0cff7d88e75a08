"""`--device FILE`: predict with what `parsim calibrate` measured."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from parsim.cli.app import main

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


MEASURED = """
devices:
  my-cpu: {from: cpu, calibrated: true, DEVICE}
systems:
  my-cpu-node: {from: cpu, device: my-cpu, calibrated: true, SYSTEM}
"""

MANY = [[1e-6 * (number + 1), 1.1] for number in range(1001)]


@pytest.mark.parametrize(
    ("device", "system", "message"),
    [
        ("gemm_efficiency: -0.5", "", "my-cpu.gemm_efficiency '-0.5' must be"),
        ("gemm_efficiency: 0", "", "my-cpu.gemm_efficiency '0' must be a plain number, above 0"),
        ("memory_efficiency: .nan", "", "my-cpu.memory_efficiency '.nan' must be"),
        (
            "memory_efficiency: [1.31, measured]",
            "",
            "must be a plain number, above 0 and at most 1.3",
        ),
        ("kernel_latency: -3us", "", "my-cpu.kernel_latency '-3us' is not a time"),
        ("kernel_latency: 20s", "", "my-cpu.kernel_latency '20s' must be from 0 s to 1 s"),
        ("memory_bandwidth: 0GB/s", "", "my-cpu.memory_bandwidth '0GB/s' must be above 0"),
        ("residuals: {gemm: [[64, 64, 64, 50]]}", "", "ratio 50; measured over modelled must be"),
        ("residuals: {gemm: [[64, 64, 64, 0.02]]}", "", "ratio 0.02; measured over modelled"),
        ("residuals: {gemm: [[64, 64, 64, -1]]}", "", "has '-1'; every number must be above 0"),
        ("residuals: {gemm: [[64, 64, 64, .nan]]}", "", "has '.nan'; every number must be above 0"),
        ("residuals: {norm_forward: [[0, 1]]}", "", "has '0'; every number must be above 0"),
        ("residuals: {block_forward: [[1e-3, 101]]}", "", "must be within 0.01 to 100"),
        ("residuals: {block-norm2_forward: [[1e-3, 101]]}", "", "must be within 0.01 to 100"),
        ("residuals: {block-norm2_forward: [[1e-3, 1, 1]]}", "", "list of 2 numbers: 1 coordinate"),
        ("residuals: {block-norm2_forward: [[1, [2]]]}", "", "has a sequence; every number must"),
        ("residuals: {block-norm2_forward: [[1, {2: 3}]]}", "", "has a mapping; every number must"),
        (f"residuals: {{block-norm2_forward: {MANY}}}", "", "has 1001 points of one kind; keep at"),
        ("", "intra: {efficiency: 1.5}", "my-cpu-node.intra.efficiency '1.5' must be"),
        ("", "call_overhead: -5us", "my-cpu-node.call_overhead '-5us' is not a time"),
        ("", "host_memory: 0GiB", "my-cpu-node.host_memory '0GiB' must be above 0"),
        ("", "interference: 2", "my-cpu-node.interference '2' must be"),
        ("", "residuals: {all_reduce: [[1024, 60]]}", "ratio 60; measured over modelled must be"),
    ],
)
def test_impossible_numbers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], device: str, system: str, message: str
) -> None:
    file = tmp_path / "device.yaml"
    file.write_text(MEASURED.replace("DEVICE", device).replace("SYSTEM", system))
    for command in ("simulate", "check"):
        assert main([command, SCENARIO, "--device", str(file)]) == 2
        text = capsys.readouterr().err
        assert message in text
        assert f"{file}:{3 if device else 5}:" in text


def test_a_layers_fixed_part_may_be_many_times_its_kernels(tmp_path: Path) -> None:
    file = tmp_path / "device.yaml"
    points = "residuals: {block_forward: [[1e-3, 42]]}"
    file.write_text(MEASURED.replace("DEVICE", points).replace("SYSTEM", ""))
    assert main(["check", SCENARIO, "--device", str(file)]) == 0


def test_kernels_outside_of_what_was_measured_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "device.yaml"
    points = "residuals: {gemm: [[1e6, 1e6, 1e6, 1]]}"
    file.write_text(MEASURED.replace("DEVICE", points).replace("SYSTEM", ""))
    assert main(["simulate", SCENARIO, "--json", "--device", str(file)]) == 0
    (text,) = [
        remark for remark in json.loads(capsys.readouterr().out)["notes"] if "outside" in remark
    ]
    assert text.startswith("100 % of the step's kernel time are kernels outside of what was")
    assert "(gemm " in text
    assert main(["simulate", SCENARIO, "--json"]) == 0
    assert "outside of what was measured" not in capsys.readouterr().out
