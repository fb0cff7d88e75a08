"""Calibration: the fit finds known constants, its file is a catalog, and this machine's is real."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from executor.calibration.cases import kinds
from executor.calibration.cases.kinds import ALL_REDUCE, SEND_RECV

pytest.importorskip("torch")

import torch

from executor.calibration.cases.samples import Kernels, Sample, link_time, neighbours
from executor.calibration.cases.setting import CalibrationSetting, cases, setting_for
from executor.calibration.cases.workloads import (
    TimedCase,
    Workload,
    bytes_of_updates,
    distinct_cases,
    update_case,
)
from executor.calibration.choice.spread import A_ROUND
from executor.calibration.conclude import conclude
from executor.calibration.fitting.catalog_file import catalog_text
from executor.calibration.fitting.constants import CHECKS, fit_device, fit_system
from executor.calibration.fitting.deviations import lines, residuals
from executor.calibration.layer_times import layer_times
from executor.calibration.measurements import Measurements
from executor.calibration.timing.bench import Bench, measure, updates_again
from executor.calibration.timing.interference import lost, products_beside
from executor.calibration.timing.layers import LayerSample
from executor.calibration.timing.losses import Losses
from executor.calibration.timing.operators import Operators
from executor.devices.machine import DeviceReport, base_device
from executor.training.norm import scale_down, square_sum
from parsim.cli.app import main
from parsim.cluster.hardware import Device, System
from parsim.cluster.reader import load_catalog
from parsim.cost.collective.collectives import collective_time
from parsim.cost.kernel.residuals import measured_factor
from parsim.cost.software import software
from parsim.scenario import load_scenario

KERNELS = Kernels(precision="fp32", value=4, software=software("executor-cpu"))
CPU = DeviceReport(kind="cpu", backend="gloo", count=2, names=("cpu",), shareable=True)
H200 = replace(CPU, kind="cuda", backend="nccl", count=1, names=("NVIDIA H200",), shareable=False)
REPORTS = {"cpu": CPU, "cuda": H200}
SCENARIO = """
description: a tiny GPT-2 on this machine
model: {name: gpt2, num_layers: 2, hidden_size: 64, num_attention_heads: 4,
        num_key_value_heads: 4, head_dim: 16, ffn_hidden_size: 128, vocab_size: 256,
        seq_len: 32, positions: 32}
cluster: {system: SYSTEM, nodes: 1CATALOG}
software: executor-cpu
training: {global_batch_size: 8, precision: fp32}
plan: {tp: 2, microbatch_size: 2, schedule: 1f1b}
"""


def scenario(folder: Path, system: str = "cpu", catalog: str = "") -> Path:
    path = folder / f"{system}.yaml"
    path.write_text(SCENARIO.replace("SYSTEM", system).replace("CATALOG", catalog))
    return path


def kernel_samples(device: Device, cases: Iterable[TimedCase]) -> list[Sample]:
    return [
        Sample(kind=x.kind, shape=x.shape, seconds=KERNELS.time(device, x.kind, x.shape))
        for x in cases
    ]


def link_samples(system: System, *ranks: float) -> list[Sample]:
    sizes = [4.0**i for i in range(6, 14)]
    shapes = [(SEND_RECV, {"bytes": size}) for size in sizes]
    shapes += [(ALL_REDUCE, {"bytes": size, "ranks": n}) for size in sizes for n in ranks or (2.0,)]
    return [Sample(kind=k, shape=s, seconds=link_time(system, k, s)) for k, s in shapes]


def known_device(base: Device) -> Device:
    return replace(
        base,
        gemm_efficiency=0.7,
        gemm_k_half=12.0,
        gemm_latency=6e-6,
        kernel_latency=4e-6,
        gemm_sustained=1.0,
        attention_sustained=1.0,
        memory_efficiency=0.8,
        attention_forward_efficiency=0.3,
        attention_backward_efficiency=0.4,
    )


def known_system() -> System:
    base = load_catalog().system("cpu")
    intra = replace(base.intra, bandwidth=9e9, efficiency=0.6, latency=20e-6)
    return replace(base, intra=intra, call_overhead=80e-6, call_overhead_per_rank=30e-6)


@pytest.mark.parametrize(("id", "kind"), [("cpu", "cpu"), ("h200-sxm", "cuda")])
def test_the_fit_finds_the_constants_of_kernels(id: str, kind: str) -> None:
    base = load_catalog().device(id)
    known = replace(known_device(base), gemm_k_half=6.0 * base.gemm_k_half)
    samples = kernel_samples(known, cases(setting_for(REPORTS[kind])))
    result = fit_device(base, samples, KERNELS)
    assert result.calibrated
    assert result.gemm_efficiency == pytest.approx(known.gemm_efficiency, rel=0.01)
    assert result.memory_efficiency == pytest.approx(known.memory_efficiency, rel=0.01)
    assert result.kernel_latency == pytest.approx(known.kernel_latency, rel=0.02)
    assert result.gemm_latency == pytest.approx(known.gemm_latency, rel=0.15)
    assert result.gemm_k_half == pytest.approx(known.gemm_k_half, rel=0.1)
    for name in ("attention_forward_efficiency", "attention_backward_efficiency"):
        assert getattr(result, name) == pytest.approx(getattr(known, name), rel=0.01)


def test_a_machine_faster_than_the_catalogs_raises_the_scale(tmp_path: Path) -> None:
    setting = setting_for(CPU)
    fast = replace(known_device(setting.device), gemm_efficiency=2.6, memory_efficiency=1.9)
    measured = Measurements(
        kernels=kernel_samples(fast, cases(setting)), links=(), reference=(1.0,), notes=()
    )
    (tmp_path / "device.yaml").write_text(conclude(setting, measured)[0])
    result = load_catalog([tmp_path / "device.yaml"]).device("my-cpu")
    assert result.gemm_efficiency == pytest.approx(1.0, rel=0.01)
    assert result.peak("fp32") == pytest.approx(2.6 * fast.peak("fp32"), rel=0.01)
    assert result.memory_bandwidth == pytest.approx(1.9 * fast.memory_bandwidth, rel=0.02)
    for sample in measured.kernels:
        modelled = KERNELS.time(result, sample.kind, sample.shape)
        assert modelled == pytest.approx(sample.seconds, rel=1e-4 if sample.kind == "gemm" else 0.1)


def test_checks_do_not_move_the_fit() -> None:
    base = load_catalog().device("cpu")
    samples = kernel_samples(known_device(base), cases(setting_for(CPU)))
    slow = [replace(x, seconds=x.seconds * (9 if x.kind in CHECKS else 1)) for x in samples]
    assert fit_device(base, slow, KERNELS) == fit_device(base, samples, KERNELS)


def test_the_fit_finds_the_constants_of_links() -> None:
    known = known_system()
    result = fit_system(load_catalog().system("cpu"), link_samples(known))
    rate = known.intra.bandwidth * known.intra.efficiency
    assert result.intra.bandwidth * result.intra.efficiency == pytest.approx(rate, rel=0.02)
    message = result.intra.latency + result.call_overhead
    assert message == pytest.approx(100e-6, rel=0.02)
    call = result.call_overhead + result.call_overhead_per_rank
    assert call == pytest.approx(110e-6, rel=0.02)


def test_residuals_by_kind() -> None:
    samples = [Sample(kind="gemm", shape={}, seconds=x) for x in (1.0, 2.0, 4.0)]
    result = residuals(samples, [1.1, 2.0, 2.0])
    assert result == {
        "gemm": {"n": 3, "median": pytest.approx(0.1), "p90": pytest.approx(0.42), "max": 0.5}
    }


def test_shapes_of_a_plan(tmp_path: Path) -> None:
    result = load_scenario(scenario(tmp_path))
    workload = Workload(spec=result.spec, plan=result.fixed_plan())
    cases = list(distinct_cases([workload], KERNELS.software))
    products = [tuple(case.shape.values()) for case in cases if case.kind == "gemm"]
    assert (64, 64, 64) in products  # 2 x 32 tokens; the ffn of 128 is split by tp=2
    assert (64, 128, 64) in products  # logits: a vocabulary of 256, split
    assert len(products) == len(set(products))
    # 4 b s^2 a d, half of it causal: 2 x 32^2 x (4 / 2 heads) x 16 x 4 / 2
    forward = next(case for case in cases if case.kind == "attention_forward")
    assert forward.shape == {"flops": 131072.0, "seq_len": 32}


def test_the_nearest_device() -> None:
    names = {
        "NVIDIA H200": "h200-sxm",
        "NVIDIA A100-SXM4-80GB": "a100-sxm-80gb",
        "NVIDIA A100-SXM4-40GB": "a100-sxm-40gb",
        "NVIDIA H100 PCIe": "h100-pcie-80gb",
        "Tesla T4": "t4",
    }
    assert {name: base_device(replace(H200, names=(name,))) for name in names} == names


def concluded(setting: CalibrationSetting, links: bool) -> tuple[str, dict[str, object]]:
    measured = Measurements(
        kernels=kernel_samples(known_device(setting.device), cases(setting_for(CPU))),
        links=link_samples(known_system()) if links else (),
        reference=(1.0, 1.0, 1.1),
        notes=(),
    )
    text, document, _ = conclude(setting, measured)
    json.dumps(document, allow_nan=False)
    return text, document


def test_the_file_is_a_catalog_that_a_scenario_uses(tmp_path: Path) -> None:
    text, document = concluded(setting_for(CPU), links=True)
    (tmp_path / "device.yaml").write_text(text)
    system = load_catalog([tmp_path / "device.yaml"]).system("my-cpu-node")
    assert system.calibrated
    assert system.device.calibrated
    assert system.device.gemm_efficiency == pytest.approx(0.7, rel=0.01)
    assert "torch" in system.device.sources["gemm_efficiency"]
    where = neighbours(system, np.array([2]))
    expected = collective_time(known_system(), "all_reduce", 1e6, where)
    assert collective_time(system, "all_reduce", 1e6, where) == pytest.approx(expected, rel=0.03)
    path = scenario(tmp_path, "my-cpu-node", ", catalog: [device.yaml]")
    assert load_scenario(path).job.device == system.device
    assert set(document) == {
        "schema_version",
        "device",
        "system",
        "residuals",
        "unmeasured",
        "repeated_layers",
    }


def test_a_measured_shape_is_reproduced_from_the_file(tmp_path: Path) -> None:
    setting = setting_for(CPU)
    samples = [
        replace(x, seconds=1.5 * x.seconds) if x.kind == "gelu_forward" else x
        for x in kernel_samples(known_device(setting.device), cases(setting))
    ]
    measured = Measurements(
        kernels=samples,
        links=link_samples(known_system()),
        reference=(1.0,),
        notes=(),
        rank_spread=0.04,
        losses=Losses(0.8, 0.3, memory_contention=0.6, two_way_loss=0.9),
        core_product=3.5e-4,
    )
    (tmp_path / "device.yaml").write_text(conclude(setting, measured)[0])
    system = load_catalog([tmp_path / "device.yaml"]).system("my-cpu-node")
    assert (system.interference, system.rank_spread) == (0.8, 0.04)
    links = system.intra.bandwidth * system.intra.efficiency
    assert system.interference_rate == pytest.approx(links, rel=1e-4)
    assert (system.memory_contention, system.message_interference) == (0.6, 0.3)
    assert system.two_way_loss == 0.9
    assert system.device.core_product == pytest.approx(3.5e-4)
    for sample in samples:
        modelled = KERNELS.time(system.device, sample.kind, sample.shape)
        assert modelled == pytest.approx(sample.seconds, rel=1e-4)


def layers_of(setting: CalibrationSetting, slower: float) -> list[LayerSample]:
    """Blocks that take so many times what the catalog's device would."""
    bare = [LayerSample(workload, "block", 0.0, 0.0) for workload in setting.workloads]
    times = layer_times(known_system(), setting.device, setting, bare)
    return [
        LayerSample(workload, "block", slower * ahead, slower * behind)
        for workload, ahead, behind in zip(setting.workloads, times[::2], times[1::2], strict=True)
    ]


def test_whole_layers_are_reproduced_too(tmp_path: Path) -> None:
    setting = setting_for(CPU)
    layers = layers_of(setting, 1.3)
    kernels = kernel_samples(setting.device, cases(setting))
    measured = Measurements(
        kernels=kernels,
        links=link_samples(known_system()),
        layers=layers,
        reference=(1.0,),
        notes=(),
    )
    text, document, _ = conclude(setting, measured)
    (tmp_path / "device.yaml").write_text(text)
    system = load_catalog([tmp_path / "device.yaml"]).system("my-cpu-node")
    again = layer_times(system, system.device, setting, layers)
    measured_times = [x for layer in layers for x in (layer.forward, layer.backward)]
    assert again == pytest.approx(measured_times, rel=5e-3)
    assert set(document["residuals"]["layers"]) == {
        "block_forward",
        "block_backward",
        "split_block_forward",
        "split_block_backward",
        "sequence_block_forward",
        "sequence_block_backward",
    }


def test_waits_are_reproduced_too(tmp_path: Path) -> None:
    """A split block waits half of the share that collectives are modelled to have of it."""
    setting = setting_for(CPU)
    blocks = [entry for entry in layers_of(setting, 1.3) if entry.workload.plan.tp > 1]
    bare = [entry._replace(part="block_waited") for entry in blocks]
    system, device = known_system(), setting.device
    exposed, wholes = (layer_times(system, device, setting, entry) for entry in (bare, blocks))
    shares = [x / y for x, y in zip(exposed, wholes, strict=True)]
    waits = [
        entry._replace(forward=0.5 * ahead, backward=0.5 * behind)
        for entry, ahead, behind in zip(bare, shares[::2], shares[1::2], strict=True)
    ]
    measured = Measurements(
        kernels=kernel_samples(device, cases(setting)),
        links=link_samples(system),
        layers=[*blocks, *waits],
        reference=(1.0,),
        notes=(),
    )
    (tmp_path / "device.yaml").write_text(conclude(setting, measured)[0])
    system = load_catalog([tmp_path / "device.yaml"]).system("my-cpu-node")
    again = [layer_times(system, system.device, setting, entry) for entry in (bare, blocks)]
    result = [x / y for x, y in zip(*again, strict=True)]
    assert result == pytest.approx([0.5 * x for x in shares], rel=0.02)


def test_one_device_has_no_links(tmp_path: Path) -> None:
    text, document = concluded(setting_for(CPU), links=False)
    (tmp_path / "device.yaml").write_text(text)
    assert "my-cpu" in load_catalog([tmp_path / "device.yaml"]).devices
    assert document["system"] is None
    assert "links were not measured" in str(document["device"])
    assert "moved by 10 %" in str(document["device"])


def test_an_unwritable_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    assert main(["calibrate", "--out", str(tmp_path / "file" / "device.yaml")]) == 2
    assert "cannot write" in capsys.readouterr().err


@pytest.mark.distributed
def test_this_machine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "device.yaml"
    words = ["calibrate", "--out", str(out), "--scenario", str(scenario(tmp_path))]
    assert main([*words, "--seconds", "5", "--device", "cpu", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert set(document) == {
        "schema_version",
        "device",
        "system",
        "residuals",
        "seconds",
        "chosen",
        "interval",
        "groups",
        "seconds_of",
        "unmeasured",
        "repeated_layers",
    }
    assert document["groups"]["sizes"] == [2]
    assert {entry["ranks"] for entry in document["system"]["curves"]} <= {2}
    # this plan's own split block comes first, whatever the time
    assert {"split_block_forward", "split_block_backward"} <= set(document["residuals"]["layers"])
    assert set(document["seconds_of"]) == {"links", "kernels", "layers", "fit"}
    assert 0 < document["interval"]["expected"] < document["interval"]["before"]
    assert document["chosen"]["gemm"]["measured"] == document["residuals"]["kernels"]["gemm"]["n"]
    # the first round; how many more fit into the seconds hangs on the machine
    assert document["residuals"]["kernels"]["gemm"]["n"] >= A_ROUND[kinds.GEMM]
    device = load_catalog([out]).device(document["device"]["id"])
    assert device.gemm_efficiency == pytest.approx(document["device"]["gemm_efficiency"], rel=1e-4)
    assert 0.01 < device.gemm_efficiency < 100.0  # of the catalog's core


def test_layers_are_a_fixed_part_and_a_share() -> None:
    times = [0.001, 0.004, 0.02]
    samples = [
        Sample(kind="block_forward", shape={"seconds": x}, seconds=0.002 + 1.1 * x) for x in times
    ]
    result = lines(samples)
    for between in (0.0005, 0.002, 0.009, 0.05):
        factor = float(measured_factor(result, "block_forward", between))
        assert between * factor == pytest.approx(0.002 + 1.1 * between, rel=0.03)


def test_a_line_is_never_below_zero() -> None:
    times = [(0.001, 0.001), (0.004, 0.0045), (0.02, 0.026)]
    samples = [Sample(kind="head_forward", shape={"seconds": x}, seconds=y) for x, y in times]
    ratios = [ratio for _, ratio in lines(samples)["head_forward"]]
    assert min(ratios) == max(ratios) == pytest.approx(1.135, rel=0.01)


@pytest.mark.parametrize(
    ("alone", "wire", "together", "share"),
    [
        (1.0, 1.0, 1.0, 0.0),
        (1.0, 1.0, 2.0, 1.0),
        (2.0, 1.0, 2.5, 0.5),
        (1.0, 4.0, 3.9, -0.1),
    ],
)
def test_what_compute_loses_beside_a_collective(
    alone: float, wire: float, together: float, share: float
) -> None:
    assert lost(alone, wire, together) == pytest.approx(share)


class Busy:
    """A bench on a machine whose memory others use at first."""

    device = torch.device("cpu")

    def __init__(self) -> None:
        self.timed: list[str] = []

    def sample(self, case: TimedCase, _: float) -> Sample:
        self.timed.append(case.kind)
        return Sample(kind=case.kind, shape=case.shape, seconds=10.0 / len(self.timed))


def test_an_update_is_timed_again_by_a_rank_that_is_alone() -> None:
    product = TimedCase("gemm", {"m": 8, "n": 8, "k": 8})
    update = TimedCase("optimizer", {"bytes": 1e6, "launches": 1}, (32768,))
    bench = Busy()
    first = measure(bench, [update, product], 10.0, 1.0)  # type: ignore[arg-type]
    assert bench.timed == ["gemm", "optimizer", "gemm", "gemm", "gemm"]
    again = updates_again(bench, first)  # type: ignore[arg-type]
    assert bench.timed[5:] == ["optimizer"]
    assert [sample.kind for sample in again.samples] == ["optimizer", "gemm"]
    assert [sample.seconds for sample in again.samples] == [10.0 / 6, 10.0 / 3]
    assert (len(again.moments), again.left) == (3, [])


def test_clipping_is_timed_behind_its_norm_and_less_its_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = Bench(torch.device("cpu"), "fp32")
    lasted = iter([0.5, 0.2])
    monkeypatch.setattr(bench, "least", lambda work, seconds: next(lasted))
    sample = bench.sample(update_case(kinds.CLIP, 8 * 64.0, 64), 0.0)
    assert sample.kind == kinds.CLIP
    assert sample.seconds == pytest.approx(0.3)


def test_clipping_reaches_the_norm_that_training_clips_to() -> None:
    operators = Operators(torch.device("cpu"), torch.bfloat16)
    norm = operators.build(update_case(kinds.NORM, 4e4, 10_000))()
    assert float(norm()) == pytest.approx(10_000, rel=0.1)  # type: ignore[arg-type]
    values = [torch.ones(4), torch.ones(12)]
    scale_down(values, square_sum(values).sqrt(), 1.0)
    assert float(square_sum(values)) == pytest.approx(1.0, rel=1e-5)


def test_stacks_without_passes_of_their_own_have_none_to_time() -> None:
    assert list(bytes_of_updates(KERNELS.software)) == list(kinds.UPDATES)
    assert list(bytes_of_updates(software("megatron-lm"))) == [kinds.OPTIMIZER]


@pytest.mark.parametrize(("kind", "ratio"), [(kinds.NORM, 0.6), (kinds.CLIP, 0.25)])
def test_passes_over_gradients_come_back_from_the_file(
    tmp_path: Path, kind: str, ratio: float
) -> None:
    device = load_catalog().device("cpu")
    point = (4194300.0, ratio)  # a file holds six digits
    device = replace(device, id="mine", residuals={kind: (point,)}, calibrated=True)
    path = tmp_path / "mine.yaml"
    path.write_text(catalog_text(device, None, ("cpu", ""), "here"))
    assert load_catalog([path]).device("mine").residuals == {kind: (point,)}


def test_products_are_about_as_long_as_the_collective() -> None:
    assert [products_beside(wire, 2.0) for wire in (0.1, 2.9, 20.0, 1e6)] == [1, 1, 10, 200]
