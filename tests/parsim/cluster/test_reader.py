"""Users' own device and system files: what they may say, and each mistake with its message."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from parsim.cluster.fields import DEVICE_FIELDS
from parsim.cluster.reader import Catalog, load_catalog
from parsim.errors import ScenarioError, alternatives

Load = Callable[..., Catalog]

KEYS = ["from", *dict.fromkeys(name.partition(".")[0] for name in DEVICE_FIELDS)]


def of_devices(word: str) -> str:
    return alternatives(word, load_catalog().devices, listing="parsim catalog devices")


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Load:
    monkeypatch.chdir(tmp_path)

    def write_and_load(*texts: str) -> Catalog:
        paths = [Path(f"my{i or ''}.yaml") for i in range(len(texts))]
        for path, text in zip(paths, texts, strict=True):
            path.write_text(text, encoding="utf-8")
        return load_catalog(paths)

    return write_and_load


def message(load: Load, *texts: str) -> str:
    with pytest.raises(ScenarioError) as error:
        load(*texts)
    assert error.value.exit_code == 2
    return str(error.value)


def test_new_device_from_a_known_one(load: Load) -> None:
    device = load("devices:\n  mine: {from: a100-sxm-80gb, memory: 60GiB}\n").device("mine")
    known = load_catalog().device("a100-sxm-80gb")
    assert device.memory == 60 * 2**30
    assert device.sources["memory"] == "my.yaml"
    assert device.peak_flops == known.peak_flops
    assert device.sources["sm_count"] == known.sources["sm_count"]


def test_value_with_a_source_of_its_own(load: Load) -> None:
    device = load('devices:\n  mine: {from: t4, memory: [15GiB, "the driver"]}\n').device("mine")
    assert device.sources["memory"] == "the driver"


def test_override_reaches_the_systems_that_use_the_device(load: Load) -> None:
    catalog = load("devices:\n  a100-sxm-80gb: {from: a100-sxm-80gb, gemm_efficiency: 0.5}\n")
    assert catalog.system("dgx-a100").device.gemm_efficiency == 0.5
    assert load_catalog().system("dgx-a100").device.gemm_efficiency != 0.5


def test_calibrated_device_file(load: Load) -> None:
    device = load("devices:\n  cpu: {from: cpu, calibrated: true}\n").device("cpu")
    assert device.calibrated is True


def test_system_with_an_own_device_and_a_changed_network(load: Load) -> None:
    catalog = load(
        "systems:\n"
        "  lab: {from: dgx-a100, device: slow, network: {nic_bandwidth: 100Gb/s}}\n"
        "devices:\n"
        "  slow: {from: a100-sxm-40gb, gemm_efficiency: 0.4}\n"
    )
    lab = catalog.system("lab")
    assert lab.device.gemm_efficiency == 0.4
    assert lab.network is not None
    assert lab.network.nic_bandwidth == 12.5e9
    assert lab.network.nics_per_node == 8


def test_system_without_network(load: Load) -> None:
    assert load("systems:\n  one: {from: dgx-h100, network: null}\n").system("one").network is None


def test_from_follows_entries_further_down(load: Load) -> None:
    catalog = load("devices:\n  a: {from: b}\n  b: {from: t4, sm_count: 39}\n")
    assert catalog.device("a").sm_count == 39


def test_later_file_wins(load: Load) -> None:
    first = "devices:\n  t4: {from: t4, sm_count: 39, gemm_k_half: 1}\n"
    second = "devices:\n  t4: {from: t4, sm_count: 38}\n"
    device = load(first, second).device("t4")
    assert (device.sm_count, device.gemm_k_half) == (38, 1)


def test_empty_file_adds_nothing(load: Load) -> None:
    assert list(load("# nothing yet\n").devices) == list(load_catalog().devices)


def test_order_of_ids_is_catalog_first(load: Load) -> None:
    assert list(load("devices:\n  mine: {from: t4}\n").devices)[-1] == "mine"


EFFICIENCY = "above 0 and at most 1.3 (no kernel or transfer reaches more; check the peak or rate)"

CASES = {
    "misspelt field": (
        "devices:\n  mine:\n    from: t4\n    memoryy: 80GiB\n",
        "my.yaml:4:5 devices.mine.memoryy unknown field 'memoryy'" + alternatives("memoryy", KEYS),
    ),
    "field of an older file": (
        "devices:\n  mine: {from: t4, gemm_wave_loss: 0.2}\n",
        "my.yaml:2:20 devices.mine.gemm_wave_loss is no longer a field; write "
        "gemm_wave_quantisation (0 to 1, see parsim/cost/kernel/gemm.py) instead",
    ),
    "efficiency that no kernel reaches": (
        "devices:\n  mine: {from: t4, gemm_efficiency: 1.31}\n",
        "my.yaml:2:37 devices.mine.gemm_efficiency '1.31' must be a plain number, " + EFFICIENCY,
    ),
    "negative efficiency": (
        "devices:\n  mine: {from: t4, memory_efficiency: -0.5}\n",
        "my.yaml:2:39 devices.mine.memory_efficiency '-0.5' must be a plain number, " + EFFICIENCY,
    ),
    "no number": (
        "devices:\n  mine: {from: t4, gemm_sustained: .nan}\n",
        "my.yaml:2:36 devices.mine.gemm_sustained '.nan' must be a plain number, " + EFFICIENCY,
    ),
    "up-links that no leaf has": (
        "systems:\n  mine: {from: dgx-a100, network: {oversubscription: [5000, typo]}}\n",
        "my.yaml:2:55 systems.mine.network.oversubscription '5000' must be a plain number, from 1 "
        "to 1000",
    ),
    "up-links faster than the leaf": (
        "systems:\n  mine: {from: dgx-a100, network: {oversubscription: 0.5}}\n",
        "my.yaml:2:54 systems.mine.network.oversubscription '0.5' must be a plain number, from 1 "
        "to 1000",
    ),
    "negative latency": (
        "devices:\n  mine: {from: t4, gemm_latency: -1us}\n",
        "my.yaml:2:34 devices.mine.gemm_latency '-1us' is not a time: it must be finite and at "
        "least 0",
    ),
    "more than one whole wave": (
        "devices:\n  mine: {from: t4, gemm_wave_quantisation: 1.5}\n",
        "my.yaml:2:44 devices.mine.gemm_wave_quantisation '1.5' must be a plain number, "
        "from 0 to 1",
    ),
    "a clock that rises with time": (
        "devices:\n  mine: {from: t4, gemm_clock_drop: 0.9}\n",
        "my.yaml:2:37 devices.mine.gemm_clock_drop '0.9' must be a plain number, at least 1",
    ),
    "unknown tiles": (
        "devices:\n  mine: {from: t4, gemm_tiles: hoper}\n",
        "my.yaml:2:32 devices.mine.gemm_tiles unknown set of tiles 'hoper' (did you mean "
        "'hopper'?); allowed: core, ampere, hopper, blackwell",
    ),
    "misspelt inner field": (
        "systems:\n  mine:\n    from: cpu\n    intra: {latncy: 5us}\n",
        "my.yaml:4:13 systems.mine.intra.latncy unknown field 'latncy' (did you mean 'latency'?); "
        "allowed: fabric, bandwidth, latency, efficiency, nvls, generation, c2c_bandwidth, torus",
    ),
    "misspelt section": (
        "device:\n  mine: {from: t4}\n",
        "my.yaml:1:1 device unknown field 'device' (did you mean 'devices'?); "
        "allowed: devices, systems",
    ),
    "unit of another dimension": (
        "devices:\n  mine: {from: t4, memory: 80Gb/s}\n",
        "my.yaml:2:28 devices.mine.memory '80Gb/s' is not a size: allowed units are B, KB, MB, "
        "GB, TB, KiB, MiB, GiB, TiB; e.g. '80GiB'",
    ),
    "bare number": (
        "devices:\n  mine: {from: t4, memory: 80}\n",
        "my.yaml:2:28 devices.mine.memory bare number 80; write it with a unit, e.g. '80GiB'",
    ),
    "bare number beside its source": (
        'devices:\n  mine: {from: t4, memory: [80, "box"]}\n',
        "my.yaml:2:29 devices.mine.memory bare number 80; write it with a unit, e.g. '80GiB'",
    ),
    "unit where none belongs": (
        "devices:\n  mine: {from: t4, gemm_efficiency: 88%}\n",
        "my.yaml:2:37 devices.mine.gemm_efficiency '88%' must be a plain number, " + EFFICIENCY,
    ),
    "zero share": (
        "devices:\n  mine: {from: t4, gemm_efficiency: 0}\n",
        "my.yaml:2:37 devices.mine.gemm_efficiency '0' must be a plain number, " + EFFICIENCY,
    ),
    "not a finite number": (
        "devices:\n  mine: {from: t4, gemm_k_half: .inf}\n",
        "my.yaml:2:33 devices.mine.gemm_k_half '.inf' must be a plain number, at least 0",
    ),
    "zero bandwidth": (
        "devices:\n  mine: {from: t4, memory_bandwidth: 0GB/s}\n",
        "my.yaml:2:38 devices.mine.memory_bandwidth '0GB/s' must be above 0",
    ),
    "half a device": (
        "systems:\n  mine: {from: cpu, devices_per_node: 1.5}\n",
        "my.yaml:2:39 systems.mine.devices_per_node '1.5' must be a whole number of at least 1",
    ),
    "unknown fabric": (
        "systems:\n  mine: {from: cpu, intra: {fabric: nvswich}}\n",
        "my.yaml:2:37 systems.mine.intra.fabric unknown fabric 'nvswich' (did you mean "
        "'nvswitch'?); allowed: nvswitch, nvlink-mesh, full-mesh, pcie, shared-memory",
    ),
    "yes is no truth value": (
        "systems:\n  mine: {from: cpu, intra: {nvls: yes}}\n",
        "my.yaml:2:35 systems.mine.intra.nvls 'yes' is no truth value; allowed: true, false",
    ),
    "a number for a name": (
        "devices:\n  mine: {from: t4, name: 4090}\n",
        "my.yaml:2:26 devices.mine.name 4090 is not text; write it in quotes: '4090'",
    ),
    "duplicate field": (
        "devices:\n  mine:\n    from: t4\n    memory: 1GiB\n    memory: 2GiB\n",
        "my.yaml:5:5 devices.mine.memory is written twice; first on line 4",
    ),
    "duplicate entry": (
        "devices:\n  mine: {from: t4}\n  mine: {from: l4}\n",
        "my.yaml:3:3 devices.mine is written twice; first on line 2",
    ),
    "unknown parent": (
        "devices:\n  mine: {from: a100-smx-80gb}\n",
        "my.yaml:2:16 devices.mine.from unknown device "
        f"'a100-smx-80gb'{of_devices('a100-smx-80gb')}",
    ),
    "parent that is no id": (
        "devices:\n  mine: {from: [t4]}\n",
        "my.yaml:2:16 devices.mine.from must be the id of an entry",
    ),
    "its own parent": (
        "devices:\n  mine: {from: mine}\n",
        f"my.yaml:2:16 devices.mine.from unknown device 'mine'{of_devices('mine')}",
    ),
    "circle": (
        "devices:\n  a: {from: b}\n  b: {from: a}\n",
        "my.yaml:3:13 devices.b.from goes round in a circle: a -> b -> a",
    ),
    "missing fields": (
        "systems:\n  mine:\n    device: t4\n    devices_per_node: 4\n"
        "    intra: {fabric: pcie, bandwidth: 12GB/s, efficiency: 0.8}\n"
        "    call_overhead: 20us\n    call_overhead_per_rank: 0us\n",
        "my.yaml:2:3 systems.mine lacks intra.latency, straggler_spread; write them, or take them "
        "over from a known system with 'from: ID'",
    ),
    "half a network": (
        "systems:\n  mine: {from: cpu, network: {nics_per_node: 1, latency: 2us}}\n",
        "my.yaml:2:3 systems.mine lacks network.nic_bandwidth, network.efficiency; write them, or "
        "take them over from a known system with 'from: ID'",
    ),
    "no peak": (
        "devices:\n  mine: {from: t4, peak_flops: null}\n",
        "my.yaml:2:3 devices.mine lacks peak_flops; give at least one of fp32, tf32, fp16, bf16, "
        "fp8, mxfp8, nvfp4, mxfp4",
    ),
    "unknown device of a system": (
        "systems:\n  mine: {from: cpu, device: t5}\n",
        f"my.yaml:2:29 systems.mine.device unknown device 't5'{of_devices('t5')}",
    ),
    "source without text": (
        'devices:\n  mine: {from: t4, memory: [80GiB, ""]}\n',
        "my.yaml:2:28 devices.mine.memory must be one value or [value, source] with a source that "
        "is not empty",
    ),
    "mapping for a value": (
        "devices:\n  mine: {from: t4, memory: {size: 80GiB}}\n",
        "my.yaml:2:28 devices.mine.memory must be one value or [value, source], not a mapping",
    ),
    "list for an entry": (
        "devices:\n  mine: [t4]\n",
        "my.yaml:2:9 devices.mine must be a mapping (key: value), not a sequence",
    ),
    "text for a file": (
        "hello\n",
        "my.yaml:1:1 must be a mapping (key: value), not a scalar",
    ),
    "not YAML": (
        "devices:\n  mine: {from: t4\n",
        "my.yaml:3:1 is not YAML: expected ',' or '}', but got '<stream end>'",
    ),
    "tab": (
        "devices:\n\tmine: {from: t4}\n",
        "my.yaml:2:1 is not YAML: a tab stands here; indent with spaces",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_mistake(load: Load, case: str) -> None:
    text, expected = CASES[case]
    assert message(load, text) == expected


def test_missing_file(tmp_path: Path) -> None:
    path = tmp_path / "no.yaml"
    with pytest.raises(ScenarioError) as error:
        load_catalog([path])
    assert str(error.value) == f"{path}: no such file"


def test_file_that_is_no_text(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ScenarioError) as error:
        load_catalog([path])
    assert str(error.value) == f"{path}: is not UTF-8 text: byte 0xff at 0"


def test_control_character(load: Load) -> None:
    assert message(load, "devices: \x07\n").startswith("my.yaml is not YAML: ")


def test_a_parent_is_named_in_any_case(load: Load) -> None:
    catalog = load("devices: {mine: {from: A100-SXM-80GB}}")
    assert catalog.device("mine").peak_flops == catalog.device("a100-sxm-80gb").peak_flops


def test_a_share_measured_anew_is_not_that_of_the_old_links(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("systems: {mine: {from: cpu, interference: 0.5}, other: {from: cpu}}\n")
    catalog = load_catalog([path])
    assert catalog.system("mine").interference_rate is None
    assert catalog.system("other").interference_rate == catalog.system("cpu").interference_rate
