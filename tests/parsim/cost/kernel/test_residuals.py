"""Residuals: measured points are met, neighbours blended, far away the kind's mean or the model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parsim.cluster.hardware import Measured
from parsim.cluster.measured.published import Scales
from parsim.cluster.reader import load_catalog
from parsim.cost.collective.collectives import collective_time
from parsim.cost.collective.group_bandwidth import groups
from parsim.cost.kernel.kernels import gemm_time, memory_time
from parsim.cost.kernel.residuals import left_out, measured_factor, residual_spread, support
from parsim.errors import ScenarioError

POINTS: Measured = {"gemm": ((64.0, 64.0, 64.0, 2.0), (1024.0, 512.0, 256.0, 1.25))}
FLAT: Measured = {"gelu_forward": ((1e4, 0.5), (1e6, 2.0), (1e8, 2.0))}


def test_measured_points_are_met() -> None:
    shapes = np.array([[64.0, 1024.0], [64.0, 512.0], [64.0, 256.0]])
    factors = measured_factor(POINTS, "gemm", *shapes)
    assert factors == pytest.approx([2.0, 1.25], rel=1e-9)


def test_what_was_not_measured_is_left_alone() -> None:
    assert measured_factor(POINTS, "optimizer", 5.0) == 1.0
    assert measured_factor({}, "gemm", 1.0, 1.0, 1.0) == 1.0


def test_far_away_the_mean_of_a_calibrated_kind_holds() -> None:
    mean = (2.0 * 1.25) ** 0.5
    assert measured_factor(POINTS, "gemm", 1e30, 1e30, 1e30) == pytest.approx(mean, rel=0.05)


def test_far_away_from_a_published_table_the_model_holds() -> None:
    scales = Scales(spread=0.1, lengths=(1.0, 0.5, 1.0), jagged=0.05, noise=0.01)
    assert measured_factor(POINTS, "gemm", 1e30, 1e30, 1e30, scales=scales) == pytest.approx(1.0)
    near = measured_factor(POINTS, "gemm", 64, 64, 64, scales=scales)
    assert near == pytest.approx(2.0, rel=0.01)  # 1 % of noise between repeats


def test_between_two_points_lies_a_blend() -> None:
    assert 0.5 < float(measured_factor(FLAT, "gelu_forward", 1e5)) < 2.0
    assert float(measured_factor(FLAT, "gelu_forward", 1e7)) == pytest.approx(1.8, abs=0.2)


@given(st.floats(1.0, 1e12))
def test_a_factor_stays_within_the_measured_ones(moved: float) -> None:
    assert 0.5 - 1e-9 <= float(measured_factor(FLAT, "gelu_forward", moved)) <= 2.0 + 1e-9


def test_one_number_and_an_array_agree() -> None:
    sizes = np.array([[1e4, 3e5], [1e4, 1e9]])
    factors = measured_factor(FLAT, "gelu_forward", sizes)
    alone = [float(measured_factor(FLAT, "gelu_forward", size)) for size in sizes.ravel()]
    assert np.shape(factors) == (2, 2)
    assert np.ravel(factors).tolist() == alone


def test_support_is_whole_at_a_measured_point_and_nothing_far_away() -> None:
    assert support(FLAT, "gelu_forward", 1e6) == pytest.approx(1.0)
    assert 0.3 < float(support(FLAT, "gelu_forward", 2e6)) < 1.0
    assert float(support(FLAT, "gelu_forward", 1e40)) < 1e-3
    assert support(FLAT, "optimizer", 1.0) == 0.0


def test_spread_grows_with_the_distance_to_what_was_measured() -> None:
    sizes = np.array([1e4, 2e4, 1e5, 1e12, 1e40])
    spreads = np.asarray(residual_spread(FLAT, "gelu_forward", sizes))
    assert spreads[0] < 1e-3
    assert (np.diff(spreads) > 0).all()
    assert float(np.asarray(residual_spread(FLAT, "optimizer", 1.0))) == 0.2
    assert float(np.asarray(residual_spread({}, "gemm", 1.0, 1.0, 1.0))) == 0.15


def test_trailing_coordinates_that_the_points_lack_are_left_out() -> None:
    assert measured_factor(POINTS, "gemm", 64, 64, 64, 8.0) == pytest.approx(2.0)


def test_a_point_left_out_is_predicted_by_the_others() -> None:
    scales = Scales(spread=0.3, lengths=(6.0,), jagged=0.1, noise=0.02)
    points = FLAT["gelu_forward"]
    for i, (size, ratio) in enumerate(points):
        others = {"x": tuple(point for j, point in enumerate(points) if j != i)}
        factor = float(measured_factor(others, "x", size, scales=scales))
        spread = float(residual_spread(others, "x", size, scales=scales))
        expected = (np.log(ratio) - np.log(factor)) / spread
        assert left_out(points, scales)[i] == pytest.approx(expected, rel=1e-3)


def test_the_order_of_points_does_not_matter() -> None:
    turned = {"gelu_forward": FLAT["gelu_forward"][::-1]}
    sizes = np.geomspace(1e3, 1e9, 20)
    assert measured_factor(turned, "gelu_forward", sizes) == pytest.approx(
        measured_factor(FLAT, "gelu_forward", sizes), rel=1e-9
    )


def test_kernels_take_their_factor() -> None:
    bare = load_catalog().device("cpu")
    device = replace(bare, residuals={**POINTS, **FLAT})
    product, slower = (gemm_time(x, "fp32", m=64, n=64, k=64) for x in (bare, device))
    assert slower == pytest.approx(2 * product)
    assert memory_time(device, 1e6, 1, "gelu_forward") == pytest.approx(2 * memory_time(bare, 1e6))
    assert memory_time(device, 1e6) == memory_time(bare, 1e6)


def test_collectives_take_their_factor() -> None:
    bare = load_catalog().system("cpu")
    system = replace(bare, residuals={"all_reduce": ((1e6, 3.0),)})
    two, stride = np.array([2]), np.array([1])
    where = groups(bare, size=two, stride=stride, world=two)
    expected = 3.0 * collective_time(bare, "all_reduce", 1e6, where)
    assert collective_time(system, "all_reduce", 1e6, where) == pytest.approx(expected)


ENTRY = "devices:\n  mine:\n    from: cpu\n    residuals:\n"


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("      gemm: [[64, 64, 64, 500]]", "ratio 500; measured over modelled must be within"),
        ("      gemm: [[64, 64, 1.0]]", "list of 4 numbers"),
        ("      gemm: []", "list of points"),
        ("      gelu_forward: [[0, 1.0]]", "every number must be above 0"),
        ("      gelu_forward: [[nan, 1.0]]", "every number must be above 0"),
        ("      gelu_forward: [[8, 1.0], [8, 2.0]]", "two points at the same place"),
    ],
)
def test_impossible_residuals_are_refused(tmp_path: Path, lines: str, message: str) -> None:
    (tmp_path / "device.yaml").write_text(ENTRY + lines + "\n")
    with pytest.raises(ScenarioError, match=message) as error:
        load_catalog([tmp_path / "device.yaml"])
    assert "device.yaml:5:" in str(error.value)
    assert "residuals." in str(error.value)
