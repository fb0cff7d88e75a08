"""A GPU that the catalog lacks is measured beside the figures of one that it has."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from executor.calibration.cases.samples import Sample  # noqa: E402
from executor.calibration.cases.setting import cases, setting_for  # noqa: E402
from executor.calibration.conclude import conclude  # noqa: E402
from executor.calibration.measurements import Measurements  # noqa: E402
from executor.devices.machine import DeviceReport  # noqa: E402
from parsim.cluster.reader import load_catalog  # noqa: E402
from parsim.errors import CatalogError, InputError  # noqa: E402

CPU = DeviceReport(kind="cpu", backend="gloo", count=2, names=("cpu",), shareable=True)
H200 = replace(CPU, kind="cuda", backend="nccl", count=1, names=("NVIDIA H200",), shareable=False)


def test_a_device_that_the_catalog_lacks_needs_one_to_stand_in_for_it(tmp_path: Path) -> None:
    lacking = replace(H200, names=("NVIDIA A100-PCIE-40GB",))
    with pytest.raises(CatalogError, match=r"nearest: .*a100-pcie-80gb.*--base ID"):
        setting_for(lacking)
    setting = setting_for(lacking, stated="a100-pcie-80gb")
    assert setting.names[0] == "a100-pcie-80gb-mine"
    kernels = [
        Sample(
            kind=x.kind,
            shape=x.shape,
            seconds=setting.kernels.time(setting.device, x.kind, x.shape),
        )
        for x in cases(setting)
    ]
    timed = Measurements(kernels=kernels, links=(), reference=(1.0, 1.0, 1.0), notes=())
    text, document, _ = conclude(setting, timed)
    (tmp_path / "device.yaml").write_text(text)
    device = load_catalog([tmp_path / "device.yaml"]).device("a100-pcie-80gb-mine")
    assert (device.name, device.calibrated) == ("NVIDIA A100-PCIE-40GB", True)
    assert device.memory == load_catalog().device("a100-pcie-80gb").memory
    told = document["device"]
    assert isinstance(told, dict)
    assert told["notes"][0].startswith("a100-pcie-80gb stands in for NVIDIA A100-PCIE-40GB: its")
    assert not setting_for(H200, stated="h200-sxm").stand_in


@pytest.mark.parametrize(
    ("report", "stated", "message"),
    [
        (H200, "h201", r"(?i)h201.*h200"),
        (H200, "cpu", "--base cpu cannot stand in for NVIDIA H200; give a GPU"),
        (CPU, "h200-sxm", "--base h200-sxm cannot stand in for cpu; .* leave --base out for a CPU"),
    ],
)
def test_what_cannot_stand_in(report: DeviceReport, stated: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        setting_for(report, stated=stated)
