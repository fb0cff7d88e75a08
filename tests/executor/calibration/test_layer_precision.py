"""Whole layers are timed in the precision of their plan, with weights of their device."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from executor.calibration.cases.setting import CalibrationSetting, setting_for  # noqa: E402
from executor.calibration.cases.targets import Target, whole_layers  # noqa: E402
from executor.calibration.cases.workloads import Workload  # noqa: E402
from executor.calibration.choice.layer_tasks import BLOCK, HEAD, LayerTask  # noqa: E402
from executor.calibration.timing.layers import LayerBench  # noqa: E402
from executor.calibration.timing.pace import Pace  # noqa: E402
from executor.devices.machine import DeviceReport  # noqa: E402
from executor.model.first_values import Values, first_values, seeded  # noqa: E402

CPU = DeviceReport(kind="cpu", backend="gloo", count=2, names=("cpu",), shareable=True)
SCENARIO = """
description: a tiny GPT-2
model: {name: gpt2, num_layers: 1, hidden_size: 64, num_attention_heads: 4,
        num_key_value_heads: 4, head_dim: 16, ffn_hidden_size: 128, vocab_size: 256,
        seq_len: 32, positions: 32}
cluster: {system: cpu, nodes: 1}
software: executor-cpu
training: {global_batch_size: 8, precision: bf16_amp}
plan: {microbatch_size: 2}
"""


@pytest.fixture
def setting(tmp_path: Path) -> CalibrationSetting:
    (tmp_path / "tiny.yaml").write_text(SCENARIO)
    return setting_for(CPU, [tmp_path / "tiny.yaml"])


@pytest.mark.parametrize(("used", "dtype"), [("bf16_amp", "bfloat16"), ("fp32", "float32")])
def test_products_are_of_the_plan_s_precision(
    used: str, dtype: str, setting: CalibrationSetting, one_rank: None
) -> None:
    [workload] = setting.asked_for
    workload = Workload(spec=workload.spec, plan=replace(workload.plan, precision=used))
    device = torch.device("cpu")
    bench, given = LayerBench(device, Pace(device)), set()
    stage = bench._bundle(workload).stage
    assert {parameter.dtype for parameter in stage.parameters()} == {torch.float32}
    for module in stage.modules():
        if isinstance(module, torch.nn.Linear):
            module.register_forward_hook(lambda _, __, output: given.add(output.dtype))
    for part in (BLOCK, HEAD):
        given.clear()
        assert bench.samples(LayerTask(workload=workload, part=part), 0.0)
        assert given == {getattr(torch, dtype)}


def test_weights_are_drawn_where_they_are_timed(
    setting: CalibrationSetting, one_rank: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The host draws some ten million a second, and a GPU waits for it."""
    drawn: list[object] = []

    def on(seed: int, device: object) -> Values:
        drawn.append(device)
        return seeded(seed)

    monkeypatch.setattr("executor.calibration.timing.layers.seeded", on)
    bench = LayerBench(torch.device("cpu"), Pace(torch.device("cpu")))
    bench._bundle(setting.asked_for[0])
    assert drawn == [bench.device]


def test_a_device_s_own_first_values() -> None:
    shape = (2, 3)
    assert first_values("fc1.weight", shape, 1, "cpu").equal(first_values("fc1.weight", shape, 1))
    with pytest.raises(RuntimeError):  # it is that device's generator that is asked
        first_values("fc1.weight", shape, 1, "cuda" if not torch.cuda.is_available() else "none")


def test_each_precision_has_layers_of_its_own(setting: CalibrationSetting) -> None:
    [target] = setting.targets
    assert target.workload is not None
    plan = replace(target.plan, precision="fp32")
    other = Target(
        job=target.job, plan=plan, workload=Workload(spec=target.workload.spec, plan=plan)
    )
    timed = whole_layers([target, other, target], setting.device)
    assert [workload.plan.precision for workload in timed] == ["bf16_amp", "fp32"]
