"""The catalog's device by the name that drivers, tables and people give it."""

from __future__ import annotations

import pytest

from parsim.cluster.device_names import alike_in_form, device_named, variant_named
from parsim.cluster.reader import load_catalog
from parsim.errors import CatalogError


@pytest.mark.parametrize(
    ("name", "id"),
    [
        ("NVIDIA A100-SXM4-80GB", "a100-sxm-80gb"),
        ("NVIDIA A100-SXM4-40GB", "a100-sxm-40gb"),
        ("NVIDIA A100 80GB PCIe", "a100-pcie-80gb"),
        ("NVIDIA H100 80GB HBM3", "h100-sxm-80gb"),
        ("NVIDIA H100 PCIe", "h100-pcie-80gb"),
        ("H100 96GB", "h100-sxm-96gb-500w"),
        ("NVIDIA H800", "h800-sxm"),
        ("NVIDIA H20", "h20-sxm"),
        ("NVIDIA H200", "h200-sxm"),
        ("B200 192GB", "b200-sxm"),
        ("NVIDIA GB200 SXM", "gb200"),
        ("NVIDIA L40S", "l40s"),
        ("Tesla V100-PCIE-16GB", "v100-pcie-16gb"),
        ("Tesla V100-SXM3-32GB", "v100-sxm-32gb"),
        ("Tesla P100-PCIE-16GB", "p100-pcie-16gb"),
        ("NVIDIA GeForce RTX 4090", "rtx-4090"),
        ("NVIDIA TITAN X (Pascal)", "titan-x-pascal"),
        ("AMD Instinct MI300X OAM", "mi300x"),
        ("AMD Instinct MI355X", "mi355x"),
        ("GeForce GTX 1080 Ti", "gtx-1080-ti"),
        ("NVIDIA GeForce RTX 2080 Ti 11GB", "rtx-2080-ti"),
        ("NVIDIA TITAN V", "titan-v"),
    ],
)
def test_a_drivers_name(name: str, id: str) -> None:
    assert device_named(name) == variant_named(name) == id


@pytest.mark.parametrize("id", load_catalog().devices)
def test_every_entry_has_its_own_name(id: str) -> None:
    device = load_catalog().device(id)
    assert device_named(id) == id
    if id.startswith(("a", "v", "h", "b2", "p", "l", "t4", "rtx")) and "500w" not in id:
        assert device_named(device.name) == id


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("NVIDIA A100-PCIE-40GB", "a100-sxm-80gb, a100-sxm-40gb, a100-pcie-80gb"),
        ("Tesla V100-PCIE-32GB", "v100-sxm-16gb, v100-sxm-32gb, v100-pcie-16gb"),
        ("NVIDIA GH200 480GB", "gb200, "),
        ("NVIDIA H100 NVL", "h100-sxm-80gb, "),
        ("NVIDIA L40", "l40s, "),
        ("NVIDIA GeForce RTX 3090 Ti", "gtx-1080-ti, rtx-2080-ti, rtx-3090, "),
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", "a100-sxm-80gb, "),
    ],
)
def test_another_part_is_refused_with_the_nearest(name: str, nearest: str) -> None:
    with pytest.raises(CatalogError) as caught:
        device_named(name)
    assert f"device '{name}' is not in the catalog; nearest: {nearest}" in str(caught.value)


def test_a_variant_has_the_chip_and_if_possible_the_form() -> None:
    assert variant_named("a100-sxm-64gb") == "a100-sxm-80gb"
    assert variant_named("NVIDIA A100-PCIE-40GB") == "a100-pcie-80gb"
    assert variant_named("h800-pcie") == "h800-sxm"
    with pytest.raises(CatalogError):
        variant_named("rtx-2080")


def test_devices_alike_but_for_their_memory() -> None:
    assert alike_in_form("a100-sxm-40gb", "a100-sxm-80gb")
    assert not alike_in_form("a100-pcie-80gb", "a100-sxm-80gb")
