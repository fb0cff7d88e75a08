"""How near predictions are to published measurements: whole tables, one set of constants.

The README and reports/accuracy.md show the errors of every row; here are the limits that no change
may break.
"""

from __future__ import annotations

import pytest

from parsim.validation.compare import Validation, validate
from tests.parsim.validation.conftest import shipped


@pytest.fixture(scope="module")
def found() -> Validation:
    names = ("megatron_sc21_table1", "korthikanti2022_step_time", "simumax_b200")
    return validate([shipped(name) for name in names])


def test_megatron_weak_scaling_from_1_7_billion_to_1_trillion(found: Validation) -> None:
    """All ten rows of table 1 of arXiv:2104.04473."""
    one = found.summary("megatron_sc21_table1_weak_scaling")
    assert (one.n, one.n_skipped) == (10, 0)
    assert one.mean_abs_error is not None
    assert one.mean_abs_error <= 0.06


def test_sequence_parallelism_of_22b_and_530b(found: Validation) -> None:
    """Five of the seven rows of arXiv:2205.05198; the other two state no step time."""
    one = found.summary("korthikanti2022_step_time_22b_530b")
    assert (one.n, one.n_skipped) == (5, 2)
    assert one.mean_abs_error is not None
    assert one.mean_abs_error <= 0.04


def test_memory_of_dense_models_on_b200(found: Validation) -> None:
    one = found.memory_summary("simumax_b200_real_vs_sim")
    assert one.n == 31
    assert one.mean_abs_error is not None
    assert one.mean_abs_error <= 0.03
