"""Networks of images are calibrated by the kernels that they are made of."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from executor.calibration.cases import kinds  # noqa: E402
from executor.calibration.cases.networks import convolution_case, convolution_of  # noqa: E402
from executor.calibration.cases.samples import Kernels, Sample  # noqa: E402
from executor.calibration.cases.setting import CalibrationSetting, setting_for  # noqa: E402
from executor.calibration.choice.candidates import choice, rounded, shape_of  # noqa: E402
from executor.calibration.fitting.constants import fit_device  # noqa: E402
from executor.calibration.fitting.deviations import points  # noqa: E402
from executor.calibration.timing.operators import Operators  # noqa: E402
from parsim.cluster.reader import load_catalog  # noqa: E402
from parsim.cost.kernel.convolutions import convolution_time  # noqa: E402
from parsim.cost.software import software  # noqa: E402
from parsim.cost.step.plan_kernels import plan_kernels  # noqa: E402
from parsim.model.networks import Convolution  # noqa: E402
from tests.executor.calibration.test_choice import CPU  # noqa: E402

SCENARIO = """
model: {name: resnet18, image_size: 32, num_classes: 10}
cluster: {system: cpu, nodes: 1}
software: executor-cpu
training: {global_batch_size: 8, precision: fp32}
plan: {dp: 2, microbatch_size: 4}
"""
OP = Convolution(
    name="conv", channels=8, outputs=12, window=(3, 5), stride=(2, 1), image_in=(9, 10),
    image_out=(5, 10), groups=2,
)  # fmt: skip
KERNELS = Kernels(precision="fp32", value=4, software=software("executor-cpu"))


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> CalibrationSetting:
    path = tmp_path_factory.mktemp("networks") / "scenario.yaml"
    path.write_text(SCENARIO)
    return setting_for(CPU, [Path(path)])


def test_nearly_all_of_a_networks_step_can_be_measured(asked: CalibrationSetting) -> None:
    """What a plan needs is measured first; gradients that meet and losses are no kernels alone."""
    (target,) = asked.targets
    kernels = plan_kernels(target.job, target.plan)
    known = {shape_of(case) for case in target.cases()}
    total = sum(kernel.weight for kernel in kernels)
    left = [k for k in kernels if (k.kind, rounded(k.where)) not in known]
    assert {k.kind for k in left} <= {*kinds.UPDATES, "accumulate", "accumulate_backward",
                                      "loss_forward", "loss_backward"}  # fmt: skip
    picked = choice(asked, 15.0)
    assert picked.expected < 0.1 < picked.before
    first = [picked.candidates[i].shape[0] for i in picked.measured[:10]]
    assert sum(kind in kinds.CONVOLUTIONS for kind in first) >= 5
    assert sum(k.weight for k in left if k.kind not in kinds.UPDATES) < 0.02 * total


@pytest.mark.parametrize("kind", kinds.CONVOLUTIONS)
def test_a_convolution_is_priced_and_run_as_the_one_it_is(kind: str) -> None:
    case = convolution_case(kind, OP, 3)
    again, images = convolution_of(case.shape)
    assert (replace(again, name="conv"), images) == (OP, 3)
    device = load_catalog().device("cpu")
    way = kind.removeprefix("conv_")
    alone = convolution_time(device, "fp32", OP, way, 3, 4.0)  # type: ignore[arg-type]
    assert KERNELS.time(device, kind, case.shape) == float(alone)
    made = Operators(torch.device("cpu"), torch.float32).build(case)()()
    outputs = [made] if isinstance(made, torch.Tensor) else [x for x in made if x is not None]  # type: ignore[attr-defined]
    shapes = {"conv_forward": (3, 12, 5, 10), "conv_data": (3, 8, 9, 10)}
    assert [tuple(x.shape) for x in outputs] == [shapes.get(kind, (12, 4, 3, 5))]


@pytest.mark.parametrize("name", kinds.PASSES)
def test_passes_over_tensors_run_both_ways(name: str, asked: CalibrationSetting) -> None:
    build = Operators(torch.device("cpu"), torch.float32).build
    cases = [case for case in asked.targets[0].cases() if case.kind.startswith(f"{name}_")]
    assert cases
    for case in cases[:2]:
        assert build(case)()() is not None


def test_what_was_measured_is_what_is_priced() -> None:
    """Twice as long as modelled: so is the convolution on the calibrated device."""
    device = load_catalog().device("cpu")
    samples = [
        Sample(kind=case.kind, shape=case.shape, seconds=2.0 * seconds)
        for case in (convolution_case(kind, OP, 3) for kind in kinds.CONVOLUTIONS)
        for seconds in [KERNELS.time(device, case.kind, case.shape)]
    ]
    fitted = fit_device(device, samples, KERNELS)
    assert fitted.gemm_efficiency == device.gemm_efficiency  # no constant moves
    measured = points(samples, KERNELS.times(fitted, samples).tolist())
    assert all(len(rows[0]) == len("mnk") + 1 for rows in measured.values())
    calibrated = replace(fitted, residuals=measured)
    for sample in samples:
        assert KERNELS.time(calibrated, sample.kind, sample.shape) == pytest.approx(sample.seconds)
