"""The shipped catalog: complete, sourced, and the same by whichever way it is read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from parsim.cluster.fields import DEVICE_FIELDS, FIELDS, SYSTEM_FIELDS
from parsim.cluster.hardware import Device
from parsim.cluster.reader import load_catalog
from parsim.cost.collective.collectives import collective_time
from parsim.cost.collective.group_bandwidth import one_group
from parsim.errors import CatalogError, alternatives

DEVICES = [
    *("v100-sxm-16gb", "v100-sxm-32gb", "a100-sxm-40gb", "a100-sxm-80gb", "a100-pcie-80gb"),
    *("h100-sxm-80gb", "h100-sxm-96gb-500w", "h100-pcie-80gb", "h200-sxm", "b200-sxm", "gb200"),
    *("gb300", "b300-sxm"),
    *("h800-sxm", "h20-sxm", "a800-sxm", "a40", "a10", "l40s", "rtx-3090", "rtx-4090"),
    *("l4", "t4", "p40", "p100-pcie-16gb", "p100-sxm-16gb", "titan-x-pascal", "cpu"),
    *("titan-x-maxwell", "gtx-1080", "gtx-1080-ti", "titan-v", "rtx-2080-ti"),
    *("k80", "m40", "m60", "v100-pcie-16gb", "tpu-v2-core", "tpu-v3-core"),
    *("mi250x", "mi300x", "mi325x", "mi350x", "mi355x", "tpu-v5e", "tpu-v5p"),
    *("tpu-v6e", "tpu7x-core"),
]
SYSTEMS = [
    *("dgx-1v", "dgx-a100", "dgx-h100", "hgx-h200", "dgx-b200", "gb200-nvl72"),
    *("jean-zay-v100", "dgx-2", "aws-p4d", "aws-p5", "aws-p5en"),
    *("rtx-4090-node", "rtx-4090-peer-node", "l40s-node"),
    *("aws-p6-b200", "gcp-a4", "gcp-a3-mega", "gcp-a3-high"),
    *("a100-nvlink-pairs", "h100-nvlink-pairs", "gb300-nvl72", "dgx-b300"),
    *("azure-nc24s-v3", "aws-p3-16xlarge", "aws-p3-2xlarge", "p100-pcie-node", "big-basin"),
    *("titan-x-25gb-node", "titan-x-40gb-node", "tpu-v2-board", "tpu-v3-board"),
    *("p100-roce-node", "dgx-1p", "gce-k80-node", "aws-p2-8xlarge", "aws-p2-16xlarge"),
    *("hgx-h800", "hgx-h20", "hgx-a800", "a100-pcie-node", "p40-node", "cpu"),
    *("mi250x-node", "mi300x-node", "mi325x-node", "mi350x-node", "mi355x-node"),
    *("tpu-v5e-slice", "tpu-v5p-slice", "tpu-v6e-slice", "tpu7x-slice"),
]
UNSOURCED_KINDS = (
    "network fabric",
    "cables",
    *("text", "flag", "fabric", "generation", "library", "tuner", "tiles"),
    *("residuals", "curves", "cables", "network fabric"),
    *("spreads", "unmeasured", "recorded steps"),
)


def shipped(section: str) -> str:
    return (files("parsim.cluster") / "catalog" / f"{section}.yaml").read_text(encoding="utf-8")


def test_ids() -> None:
    catalog = load_catalog()
    assert sorted(catalog.devices) == sorted(DEVICES)
    assert sorted(catalog.systems) == sorted(SYSTEMS)


@pytest.mark.parametrize("section", FIELDS)
def test_every_written_number_stands_beside_its_source(section: str) -> None:
    from ruamel.yaml import YAML

    def leaves(node: dict[str, Any], path: list[str]) -> Iterator[tuple[str, Any]]:
        for key, value in node.items():
            inner = [*path, key]
            if isinstance(value, dict):
                yield from leaves(value, inner)
            else:
                yield ".".join(inner), value

    for name, entry in YAML(typ="safe", pure=True).load(shipped(section))[section].items():
        for field, value in leaves(entry, []):
            kind = FIELDS[section].get(field, "text")
            if kind not in UNSOURCED_KINDS and value is not None:
                assert isinstance(value, list), f"{name}.{field}"
                assert len(value) == 2, f"{name}.{field}"
                assert str(value[1]).strip(), f"{name}.{field}"


@pytest.mark.parametrize("id", DEVICES)
def test_every_number_of_a_device_has_a_source(id: str) -> None:
    device = load_catalog().device(id)
    peaks = {f"peak_flops.{precision}" for precision in device.peak_flops}
    plain = {field for field, kind in DEVICE_FIELDS.items() if kind not in UNSOURCED_KINDS}
    if not {"fp8", "mxfp8", "nvfp4", "mxfp4"} & device.peak_flops.keys():
        plain -= {"fp8_efficiency"}
    shares = {f"convolution.{name}" for name in device.convolution}
    shares |= {f"quantized_attention.{name}" for name in device.quantized_attention}
    expected = {field for field in plain if "." not in field} | peaks | shares
    # a factor of 1 or a time of 0 says nothing and needs no source
    neutral = {
        listed.name for listed in fields(Device) if getattr(device, listed.name) == listed.default
    }
    assert set(device.sources) | neutral >= expected >= set(device.sources)
    assert "devices.yaml" not in device.sources.values()


OPTIONAL_LINKS = {
    "devices_per_host",
    "host_bandwidth",
    "host_memory",
    "interference_rate",
    "intra.c2c_bandwidth",
    "intra.torus",
    "memory_contention",
    "network.rails",
    "network.spines",
    "rank_spread",
}
"""What not every system has; where it is written, it has a source."""


@pytest.mark.parametrize("id", SYSTEMS)
def test_every_number_of_a_system_has_a_source(id: str) -> None:
    system = load_catalog().system(id)
    expected = {
        field
        for field, kind in SYSTEM_FIELDS.items()
        if kind not in UNSOURCED_KINDS
        and (
            field != "interference" or field in system.sources or (system.interference or 0) > 0
        )  # 0, written or not, where copy engines do it
        and (system.network is not None or not field.startswith("network."))
        and field not in ("message_interference", "two_way_loss")  # calibrated systems only
        and (field not in OPTIONAL_LINKS or field in system.sources)
    }
    assert set(system.sources) == expected
    assert "systems.yaml" not in system.sources.values()


@pytest.mark.parametrize("section", FIELDS)
def test_cut_into_entries_the_file_says_the_same_as_whole(section: str, tmp_path: Path) -> None:
    # The whole shipped file, read as a user's file over the built-in catalog, changes nothing
    # but the name of the file where a value has no source of its own; the catalog has none.
    path = tmp_path / f"{section}.yaml"
    path.write_text(shipped(section), encoding="utf-8")
    whole, cut = load_catalog([path]), load_catalog()
    assert list(getattr(whole, section)) == list(getattr(cut, section))
    assert dict(getattr(whole, section)) == dict(getattr(cut, section))


def test_units_and_directions() -> None:
    system = load_catalog().system("dgx-a100")
    assert system.intra.bandwidth == 300e9
    assert system.network is not None
    assert system.network.nic_bandwidth == 25e9
    assert system.network.node_bandwidth == 200e9
    assert system.device.peak("bf16") == 312e12
    assert system.device.memory == 79.15 * 2**30


def test_peaks_are_dense_not_sparse() -> None:
    peaks = {name: load_catalog().device(name).peak_flops for name in DEVICES}
    assert peaks["h100-sxm-80gb"]["bf16"] == 989e12
    assert peaks["b200-sxm"]["fp8"] == 4500e12
    assert peaks["gb300"]["nvfp4"] == 15e15
    assert peaks["l4"]["fp16"] == 121e12


def test_parts_with_less_power_sustain_less_of_the_same_chip() -> None:
    """Between the ratio of the power limits and its cube root, in 16-bit FLOP/s."""
    for full, limited in (("h100-sxm-80gb", "h100-sxm-96gb-500w"), ("gb300", "b300-sxm")):
        more, less = (load_catalog().device(name) for name in (full, limited))
        assert more.power is not None
        assert less.power is not None
        power = less.power / more.power
        rate = less.peak("bf16") * less.gemm_sustained / more.peak("bf16") / more.gemm_sustained
        assert power < rate < power ** (1 / 3)


def test_null_takes_a_precision_away() -> None:
    assert set(load_catalog().device("v100-sxm-16gb").peak_flops) == {"fp32", "fp16"}
    with pytest.raises(CatalogError) as error:
        load_catalog().device("t4").peak("bf16")
    assert str(error.value) == "device t4 has no bf16 peak; allowed: fp32, fp16"


def test_one_node_system_has_no_network() -> None:
    assert load_catalog().system("cpu").network is None


def test_nothing_of_the_catalog_claims_to_be_calibrated() -> None:
    catalog = load_catalog()
    assert not any(device.calibrated for device in catalog.devices.values())
    assert not any(system.calibrated for system in catalog.systems.values())


def test_loaded_once() -> None:
    assert load_catalog() is load_catalog()


def test_system_with_another_device() -> None:
    system = load_catalog().system("dgx-a100", device="a100-sxm-40gb")
    assert system.device.id == "a100-sxm-40gb"
    assert system.devices_per_node == 8


def test_unknown_device() -> None:
    with pytest.raises(CatalogError) as error:
        load_catalog().device("a100-smx-80gb")
    assert str(error.value) == (
        "unknown device 'a100-smx-80gb'"
        + alternatives("a100-smx-80gb", load_catalog().devices, listing="parsim catalog devices")
    )


def test_unknown_system() -> None:
    with pytest.raises(CatalogError) as error:
        load_catalog().system("abacus")
    assert str(error.value) == (
        "unknown system 'abacus'"
        + alternatives("abacus", load_catalog().systems, listing="parsim catalog systems")
    )


def test_a_network_is_as_fast_as_was_measured_there() -> None:
    """Jean Zay's V100s: all-reduce of 4 GB on 16 nodes at 54.9 Gb/s of bus bandwidth."""
    system = load_catalog().system("jean-zay-v100")
    ranks = one_group(system, 64)
    seconds = collective_time(system, "all_reduce", np.array([4e9]), ranks)[0]
    assert 2.0 * 4e9 * 63 / 64 / seconds == pytest.approx(54.9e9 / 8, rel=0.1)
