"""Published kernel times of the catalog's devices."""

from __future__ import annotations

import pytest

from parsim.cluster.measured.published import benchmark
from parsim.cluster.reader import load_catalog

MEASURED = ("a100-sxm-80gb", "h100-sxm-80gb", "a100-pcie-80gb", "b200-sxm")


@pytest.mark.parametrize("device", MEASURED)
def test_each_kind_has_scales_for_all_its_coordinates(device: str) -> None:
    result = benchmark(device)
    assert "gemm" in result.points
    assert set(result.points) == set(result.scales)
    for kind, points in result.points.items():
        lengths = result.scales[kind].lengths
        assert {len(point) for point in points} == {len(lengths) + 1}
        assert len({point[:-1] for point in points}) == len(points)
        assert result.scales[kind].spread > 0


@pytest.mark.parametrize("device", MEASURED)
def test_measured_over_modelled_time_is_no_mistake(device: str) -> None:
    for points in benchmark(device).points.values():
        assert all(0.4 < point[-1] < 2.5 for point in points)


def test_only_devices_of_the_catalog_have_a_table() -> None:
    assert set(MEASURED) <= set(load_catalog().devices)
    for name in set(load_catalog().devices) - set(MEASURED):
        assert benchmark(name).points == {}
    assert benchmark("../../devices").points == {}
