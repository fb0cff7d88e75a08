"""Residuals: measured points are met, neighbours blended, the mean holds far away."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parsim.cluster.hardware import Measured
from parsim.cluster.reader import load_catalog
from parsim.cost.collectives import collective_time, groups
from parsim.cost.kernels import gemm_time, memory_time
from parsim.cost.residuals import covered, measured_factor
from parsim.errors import ScenarioError

POINTS: Measured = {"gemm": ((64.0, 64.0, 64.0, 2.0), (1024.0, 512.0, 256.0, 1.25))}
FLAT: Measured = {"gelu_forward": ((1e4, 0.5), (1e6, 2.0), (1e8, 2.0))}


def test_measured_points_are_met() -> None:
    shapes = np.array([[64.0, 1024.0], [64.0, 512.0], [64.0, 256.0]])
    found = measured_factor(POINTS, "gemm", *shapes)
    assert found == pytest.approx([2.0, 1.25], rel=1e-9)


def test_what_was_not_measured_is_left_alone() -> None:
    assert measured_factor(POINTS, "optimizer", 5.0) == 1.0
    assert measured_factor({}, "gemm", 1.0, 1.0, 1.0) == 1.0


def test_far_away_the_mean_of_the_kind_holds() -> None:
    mean = (2.0 * 1.25) ** 0.5
    assert measured_factor(POINTS, "gemm", 1e30, 1e30, 1e30) == pytest.approx(mean, rel=1e-2)


def test_between_two_points_lies_a_blend() -> None:
    assert 0.5 < float(measured_factor(FLAT, "gelu_forward", 1e5)) < 2.0
    assert float(measured_factor(FLAT, "gelu_forward", 1e7)) == pytest.approx(1.9, abs=0.15)


@given(st.floats(1.0, 1e12))
def test_a_factor_stays_within_the_measured_ones(moved: float) -> None:
    assert 0.5 - 1e-9 <= float(measured_factor(FLAT, "gelu_forward", moved)) <= 2.0 + 1e-9


def test_one_number_and_an_array_agree() -> None:
    sizes = np.array([[1e4, 3e5], [1e4, 1e9]])
    found = measured_factor(FLAT, "gelu_forward", sizes)
    alone = [float(measured_factor(FLAT, "gelu_forward", size)) for size in sizes.ravel()]
    assert np.shape(found) == (2, 2)
    assert np.ravel(found).tolist() == alone


def test_what_is_covered() -> None:
    assert covered(FLAT, "gelu_forward", 3e4)
    assert not covered(FLAT, "gelu_forward", 1e11)
    assert covered(FLAT, "optimizer", 1.0)


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
    two, one = np.array([2]), np.array([1])
    where = groups(bare, size=two, stride=one, world=two)
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
