"""Groups of ranks: which a calibration times, the curves it fits, and what reads them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from executor.calibration.cases.kinds import ALL_REDUCE, SEND_RECV

pytest.importorskip("torch")

from executor.calibration.cases.rank_groups import RankGroups, rank_groups
from executor.calibration.cases.samples import Sample, link_time
from executor.calibration.cases.setting import CalibrationSetting, setting_for
from executor.calibration.conclude import conclude
from executor.calibration.fitting.curves import curves_of, fitted
from executor.calibration.measurements import Measurements
from executor.calibration.timing.links import link_cases
from executor.devices.machine import DeviceReport
from parsim.cli.app import main
from parsim.cluster.hardware import System
from parsim.cluster.reader import load_catalog
from parsim.cost.collective.collectives import collective_time
from parsim.cost.collective.group_bandwidth import one_group
from parsim.cost.collective.measured_curve import collective_spread
from parsim.scenario import load_scenario
from tests.executor.launch import launch

WORKER = Path(__file__).parents[1] / "workers" / "groups.py"
CPU = DeviceReport(kind="cpu", backend="gloo", count=2, names=("cpu",), shareable=True)
CORES = replace(CPU, count=16)
GPUS = replace(
    CPU, kind="cuda", backend="nccl", count=8, names=("NVIDIA H200",) * 8, shareable=False
)
SCENARIO = """
model: {name: gpt2, num_layers: 4, hidden_size: 64, num_attention_heads: 4,
        num_key_value_heads: 4, head_dim: 16, ffn_hidden_size: 128, vocab_size: 256,
        seq_len: 32, positions: 32}
cluster: {system: SYSTEM, nodes: NODES}
software: executor-cpu
training: {global_batch_size: 64, precision: fp32}
"""
CALL = {"call_overhead": 50e-6, "call_overhead_per_rank": 20e-6}


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    path = tmp_path / "one.yaml"
    text = SCENARIO.replace("SYSTEM", "dgx-h100").replace("NODES", "2")
    path.write_text(f"{text}plan: {{tp: 2, pp: 2, dp: 4, zero_stage: 1, microbatch_size: 2}}\n")
    return path


def test_a_plan_has_the_groups_of_its_axes_and_of_all_ranks(scenario: Path) -> None:
    result = rank_groups(CORES, [load_scenario(scenario)])
    assert (result.sizes, result.left_out) == ((2, 4, 16), ())
    assert (result.world, result.oversubscribed) == (16, False)


def test_a_plan_space_has_the_groups_of_all_its_plans(tmp_path: Path) -> None:
    path = tmp_path / "space.yaml"
    text = SCENARIO.replace("SYSTEM", "dgx-h100").replace("NODES", "1")
    path.write_text(f"{text}search: {{}}\n")
    result = rank_groups(GPUS, [load_scenario(path)])
    assert (result.sizes, result.left_out) == ((2, 4, 8), ())


def test_more_ranks_than_devices_only_where_asked_for(scenario: Path) -> None:
    loaded = [load_scenario(scenario)]
    result = rank_groups(CPU, loaded)
    assert (result.sizes, result.left_out, result.world) == ((2,), (4, 16), 2)
    assert result.unmeasured("cpu", shareable=True) == (
        "groups of 4, 16 ranks are not measured: this machine has 2 CPU cores; --oversubscribe "
        "lets ranks share them"
    )
    asked = rank_groups(CPU, loaded, oversubscribe=True)
    assert (asked.sizes, asked.left_out, asked.oversubscribed) == ((2, 4, 16), (), True)
    assert asked.words("cpu").endswith("sharing 2 CPU cores: oversubscribed")
    alone = rank_groups(replace(GPUS, count=1), loaded, oversubscribe=True)  # NCCL refuses it
    assert (alone.sizes, alone.world) == ((), 1)


@pytest.mark.parametrize(
    ("report", "sizes"),
    [
        (CPU, (2,)),
        (CORES, (2,)),
        (replace(CPU, count=1), ()),
        (GPUS, (2, 4, 8)),
        (replace(GPUS, count=6), (2, 4)),
        (replace(GPUS, count=1), ()),
        (replace(GPUS, count=1, shareable=True), (2,)),
    ],
)
def test_usual_groups(report: DeviceReport, sizes: tuple[int, ...]) -> None:
    assert rank_groups(report, []).sizes == sizes


def test_experts_exchange_tokens() -> None:
    cases = list(link_cases(RankGroups(sizes=(3, 4), experts=(4,), devices=4)))
    assert {case.shape["ranks"] for case in cases if case.kind == "all_to_all"} == {4.0}
    assert {case.kind for case in cases if case.shape.get("ranks") == 3.0} == {
        "all_reduce",
        "all_gather",
        "reduce_scatter",
    }
    # every rank of three has as many fp32 values
    assert all(case.shape["bytes"] % 12 == 0 for case in cases if case.shape.get("ranks") == 3.0)


SIZES = np.array([4096.0, 65536.0, 2.0**20, 2.0**23, 2.0**25])


@pytest.mark.parametrize(
    ("latency", "rate", "ramp"), [(2e-4, 2e9, 3e-4), (0.0, 1e10, 0.0), (5e-5, 3e11, 0.0)]
)
def test_a_curve_is_found(latency: float, rate: float, ramp: float) -> None:
    seconds = 7e-5 + latency + SIZES / rate + ramp * np.sqrt(SIZES / 2**20)
    result = fitted(SIZES, seconds, 7e-5)
    assert result is not None
    assert result == pytest.approx((latency, 1.0 / rate, ramp), rel=1e-6, abs=1e-15)


def test_a_curve_needs_sizes_and_growing_times() -> None:
    assert fitted(SIZES[:2], SIZES[:2] / 1e9, 0.0) is None
    assert fitted(SIZES, np.full(5, 1e-3), 0.0) is None
    fast = fitted(SIZES, SIZES / 1e9 + 1e-5, 1e-3)  # a call costs less than was thought
    assert fast is None or min(fast) >= 0.0


def links(setting: CalibrationSetting, *groups: int) -> list[Sample]:
    """Times of groups that are slower than links alone would be, each by a factor of its own."""
    base = setting.base
    assert base is not None
    true = replace(base, **CALL)  # type: ignore[arg-type]
    collected = []
    for size in map(float, SIZES):
        for ranks in map(float, groups):
            shape = {"bytes": size, "ranks": ranks}
            seconds = ranks * link_time(true, ALL_REDUCE, shape)
            collected.append(Sample(kind=ALL_REDUCE, shape=shape, seconds=seconds))
        shape = {"bytes": size}
        seconds = link_time(true, SEND_RECV, shape)
        collected.append(Sample(kind=SEND_RECV, shape=shape, seconds=seconds))
    return collected


def calibrated(folder: Path, report: DeviceReport, scenario: Path) -> tuple[System, list[Sample]]:
    setting = setting_for(report, [scenario])
    samples = links(setting, *setting.groups.sizes[:2])
    kernels = [Sample(kind="gemm", shape={"m": 512, "n": 512, "k": 512}, seconds=0.01)]
    measured = Measurements(kernels=kernels, links=samples, reference=(1.0,), notes=())
    text, document, _ = conclude(setting, measured)
    assert [entry["ranks"] for entry in document["system"]["curves"]] == [2, 4]
    assert {entry["n"] for entry in document["system"]["curves"]} == {len(SIZES)}
    (folder / "device.yaml").write_text(text)
    return load_catalog([folder / "device.yaml"]).system(document["system"]["id"]), samples


@pytest.mark.parametrize("report", [CORES, GPUS])
def test_curves_of_every_group_are_in_the_file(
    tmp_path: Path, scenario: Path, report: DeviceReport
) -> None:
    system, samples = calibrated(tmp_path, report, scenario)
    assert system.devices_per_node == report.count
    assert [(sample.ranks, sample.nodes) for sample in system.curves] == [(2, 1), (4, 1)]
    assert {row[1] for row in system.residuals[ALL_REDUCE]} == {2.0, 4.0}
    for sample in samples:
        assert link_time(system, sample.kind, sample.shape) == pytest.approx(
            sample.seconds, rel=2e-3
        )


def test_other_groups_take_the_nearest_and_are_less_sure(tmp_path: Path, scenario: Path) -> None:
    system, _ = calibrated(tmp_path, CORES, scenario)
    plain = replace(system, curves=(), residuals={})
    ratios = [
        float(collective_time(on, "all_reduce", 2.0**23, one_group(on, ranks))[0])
        for ranks in (4, 8)
        for on in (system, plain)
    ]
    assert ratios[2] / ratios[3] == pytest.approx(ratios[0] / ratios[1], rel=0.3)
    spreads = [
        collective_spread(system, "all_reduce", 2.0**23, one_group(system, ranks))[0]
        for ranks in (2, 4, 8)
    ]
    assert spreads[0] == spreads[1] < spreads[2]


def test_the_command_tells_what_a_number_rests_on(
    tmp_path: Path, scenario: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    calibrated(tmp_path, CORES, scenario)
    words = ["collectives", "--device", str(tmp_path / "device.yaml"), "--kind", "all_reduce"]
    measured = "a measured curve of this very group"
    nearest = "scaled by the nearest measured curve"
    for ranks, expected in ((4, measured), (8, nearest)):
        assert main([*words, "--ranks", str(ranks), "--sizes", "1MiB,8MiB", "-v"]) == 0
        assert expected in capsys.readouterr().out


@pytest.mark.distributed
def test_groups_of_four_forked_ranks(tmp_path: Path) -> None:
    """Four ranks on fewer cores: that the way works, not how fast it is."""
    result = launch(WORKER, "2,4", "4", ranks=4, folder=tmp_path, timeout=120.0)
    samples = result[0]
    kinds = {(kind, shape.get("ranks", 0.0)) for kind, shape, _ in samples}
    assert {
        ("all_reduce", 2.0),
        ("all_gather", 4.0),
        ("reduce_scatter", 4.0),
        ("all_to_all", 4.0),
        ("send_recv", 0.0),
    } <= kinds
    assert all(seconds > 0.0 for _, _, seconds in samples)
    assert [len(entry) for entry in result] == [len(samples)] * 4  # all ranks go the same way
    system = replace(load_catalog().system("cpu"), devices_per_node=4)
    listed = [Sample(kind=kind, shape=shape, seconds=seconds) for kind, shape, seconds in samples]
    assert {entry.ranks for entry in curves_of(system, listed, "a test")} <= {2, 4}


def test_a_setting_has_the_groups_of_its_scenarios(scenario: Path) -> None:
    result = load_scenario(scenario)
    assert setting_for(CPU, [scenario]).groups == rank_groups(CPU, [result])
    assert setting_for(CPU, [scenario], oversubscribe=True).groups.world == 16
