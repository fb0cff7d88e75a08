"""Predicted kernels beside published ones: errors on unseen shapes, intervals, the document."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from parsim.cli.app import main
from parsim.cluster.reader import load_catalog
from parsim.cost.kernel.gemm import TILINGS
from parsim.fitting.kernels.fit import distinct_kernels, fit_constants, model_times
from parsim.fitting.kernels.unseen import (
    SPLITS,
    Split,
    constants_of,
    errors_on,
    families,
    halves,
    published,
    unseen,
)
from parsim.fitting.reports.kernel_fit import DEVICES
from parsim.validation.kernel.measured_kernel import Kernel
from parsim.validation.kernel.validate import KernelValidation, predicted_time, validate_kernels
from parsim.validation.tables import shipped_tables

TABLE = """row_id,gpu_type,op,m,n,k,dtype,time_us
a,A100,proj,64,8192,1024,16-bit,15
b,A100,proj,4096,8192,8192,16-bit,2500
c,Gaudi3,proj,64,8192,1024,16-bit,15
d,A100,proj,lots,8192,1024,16-bit,15
"""


@cache
def kernels(device: str, kind: str) -> list[Kernel]:
    return published(device, kind)


@cache
def everything() -> KernelValidation:
    return validate_kernels(shipped_tables("kernels"))


def quantiles(errors: list[np.ndarray]) -> tuple[float, float]:
    size = [np.abs(split) for split in errors]
    median, p90 = (float(np.mean([np.quantile(split, q) for split in size])) for q in (0.5, 0.9))
    return median, p90


@cache
def half_splits(device: str) -> list[Split]:
    """Constants from the catalog, residuals from one half of the shapes, errors on the other."""
    rows = kernels(device, "gemm")
    result = load_catalog().device(device)
    return [errors_on(result, *halves(rows, seed)) for seed in range(SPLITS)]


@pytest.mark.parametrize(
    ("device", "median", "p90"),
    [
        ("a100-sxm-80gb", 0.043, 0.14),
        ("h100-sxm-80gb", 0.043, 0.14),
        ("a100-pcie-80gb", 0.016, 0.08),
        ("b200-sxm", 0.05, 0.26),
    ],
)
def test_products_outside_the_measured_half(device: str, median: float, p90: float) -> None:
    result = quantiles([half_split.corrected for half_split in half_splits(device)])
    assert result[0] <= median
    assert result[1] <= p90


@pytest.mark.parametrize("device", DEVICES)
def test_residuals_are_worth_it(device: str) -> None:
    with_them = quantiles([half_split.corrected for half_split in half_splits(device)])
    without = quantiles([half_split.model for half_split in half_splits(device)])
    assert with_them[0] < without[0]


@pytest.mark.parametrize("device", DEVICES)
def test_four_of_five_unseen_products_lie_in_the_interval(device: str) -> None:
    inside = np.mean([half_split.inside.mean() for half_split in half_splits(device)])
    assert 0.7 < inside < 0.9


@pytest.mark.parametrize(
    ("device", "direction", "median", "p90"),
    [
        ("a100-pcie-80gb", "forward", 0.01, 0.02),
        ("a100-pcie-80gb", "backward", 0.02, 0.08),
        ("b200-sxm", "forward", 0.061, 0.13),
        ("b200-sxm", "backward", 0.06, 0.13),
    ],
)
def test_attention_with_each_shape_left_out(
    device: str, direction: str, median: float, p90: float
) -> None:
    kind = f"attention_{direction}"
    rows = kernels(device, kind)
    errors = []
    for group in families(rows):
        seen = [left for i, left in enumerate(rows) if i not in group]
        errors.append(unseen(kind, seen, [rows[i] for i in group]).corrected)
    result = quantiles([np.concatenate(errors)])
    assert result[0] <= median
    assert result[1] <= p90


@pytest.mark.parametrize(
    ("device", "kind", "median", "p90"),
    [
        ("a100-sxm-80gb", "gemm", 0.05, 0.135),
        ("h100-sxm-80gb", "gemm", 0.05, 0.155),
        ("a100-pcie-80gb", "gemm", 0.015, 0.08),
        ("b200-sxm", "gemm", 0.05, 0.24),
        ("b200-sxm", "grouped_gemm", 0.09, 0.22),
        ("a100-pcie-80gb", "grouped_gemm", 0.04, 0.11),
    ],
)
def test_the_catalogs_constants_alone(device: str, kind: str, median: float, p90: float) -> None:
    rows = kernels(device, kind)
    measured = np.array([row.seconds for row in rows])
    result = quantiles([model_times(load_catalog().device(device), rows) / measured - 1.0])
    assert result[0] <= median
    assert result[1] <= p90


@pytest.mark.parametrize("device", DEVICES)
def test_a_table_returns_its_own_entries_within_their_noise(device: str) -> None:
    """Also tells that the residual tables belong to the catalog's present constants."""
    errors = [predicted_time(kernel) / kernel.seconds - 1.0 for kernel in kernels(device, "gemm")]
    assert np.median(np.abs(errors)) < 0.005
    assert np.max(np.abs(errors)) < 0.05


def test_a_fit_does_not_depend_on_the_order_of_rows() -> None:
    rows = kernels("a100-pcie-80gb", "gemm")
    turned = distinct_kernels([rows[i] for i in np.random.default_rng(1).permutation(len(rows))])
    device, constants = load_catalog().device("a100-pcie-80gb"), constants_of("gemm", rows)
    first, other = (fit_constants(device, some, constants) for some in (rows, turned))
    assert model_times(first, rows) == pytest.approx(model_times(other, rows), rel=0.005)
    jumbled = [rows[i] for i in np.random.default_rng(2).permutation(len(rows))]
    third = fit_constants(device, jumbled, constants)
    assert model_times(first, rows) == pytest.approx(model_times(third, rows), rel=0.005)


def test_each_generation_has_tiles() -> None:
    assert {load_catalog().device(name).gemm_tiles for name in DEVICES} == set(TILINGS) - {"core"}


def test_every_row_of_the_shipped_tables_is_priced_or_says_why_not() -> None:
    result = everything()
    assert len(result.rows) == 5067
    assert sum(result.skipped.values()) == 12
    assert all(row.reason or (row.predicted or 0.0) > 0.0 for row in result.rows)
    assert sum(summary.n for summary in result.summaries) == 5067 - 12


def test_rows_in_their_own_table_are_called_measured() -> None:
    for summary in everything().summaries:
        if summary.table.startswith("gemm_xla"):  # some shapes of others' tables
            assert summary.sources[0] < 0.05 * summary.n
        elif summary.kind == "grouped_gemm" or summary.table.startswith(
            ("gemm_mamf", "gemm_alignment")
        ):
            assert summary.sources[0] == 0
        else:
            assert summary.sources == (summary.n, 0, 0)


@pytest.mark.parametrize(
    ("device", "median", "bias"),
    [("h100-sxm-80gb", 0.07, 0.09), ("b200-sxm", 0.19, -0.14), ("mi300x", 0.15, 0.04)],
)
def test_products_that_no_fit_takes(device: str, median: float, bias: float) -> None:
    """They are as far off as they were when nobody had looked at them (data/kernels/README.md)."""
    blind = [s for s in everything().summaries if s.table.startswith("gemm_xla")]
    (summary,) = (summary for summary in blind if summary.device == device)
    assert summary.n == 375
    assert summary.median_abs_error < median
    assert abs(summary.bias) < abs(bias)


def test_the_document(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "own.csv").write_text(TABLE)
    assert main(["validate", "--kernels", str(tmp_path / "own.csv"), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert set(document) == {"schema_version", "rows", "summary", "skipped"}
    first, second, third, fourth = document["rows"]
    assert set(first) == {
        "table",
        "row_id",
        "status",
        "reason",
        "device",
        "kind",
        "predicted_time_s",
        "measured_time_s",
        "error",
        "interval_s",
        "source",
    }
    assert first["source"] == "measured"
    assert first["error"] == pytest.approx(first["predicted_time_s"] / 15e-6 - 1.0)
    low, high = second["interval_s"]
    assert low < second["predicted_time_s"] < high
    assert [entry["status"] for entry in (third, fourth)] == ["skipped", "skipped"]
    assert third["interval_s"] is None
    assert fourth["reason"].startswith("m='lots' is not a whole number")
    (summary,) = document["summary"]
    assert (summary["n"], summary["device"], summary["kind"]) == (2, "a100-sxm-80gb", "gemm")
    assert summary["n_measured"] + summary["n_corrected"] + summary["n_model"] == 2
    assert [entry["n"] for entry in document["skipped"]] == [1, 1]


def test_the_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "own.csv").write_text(TABLE)
    assert main(["validate", "--kernels", str(tmp_path / "own.csv"), "-v"]) == 0
    text = capsys.readouterr().out
    assert "skipped 1 of own: gpu_type: device 'Gaudi3' is not in the catalog" in text
    assert "a100-sxm-80gb" in text
    assert "in 80 %" in text


def test_a_report_of_kernels_comes_from_the_fit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["validate", "--kernels", "--report", str(tmp_path / "r.md")]) == 2
    assert "make fit-kernels" in capsys.readouterr().err


def test_a_missing_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", "--kernels", str(tmp_path / "none.csv")]) == 2
    assert "no such file" in capsys.readouterr().err
