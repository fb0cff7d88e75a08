"""Runs that ran though they are predicted not to fit: counted, and listed with their peaks."""

from __future__ import annotations

from dataclasses import replace

from parsim.report.accuracy.fits import unfit_lines
from parsim.validation.validate import Validation, validate
from tests.parsim.validation.conftest import shipped


def test_every_run_is_in_one_of_three_words_and_what_is_too_large_is_listed() -> None:
    ran = validate([shipped("megatron_sc21_table1_weak_scaling")]).rows
    small = list(unfit_lines(Validation(rows=ran)))
    assert small[0].startswith("Of 10 runs that ran, 10 are predicted to fit, 0 to be tight, 0 not")
    grown = [replace(row, predicted_peak=1e12) for row in ran[:2]]
    listed = list(unfit_lines(Validation(rows=(*grown, *ran[2:]))))
    assert "8 are predicted to fit, 0 to be tight, 2 not to fit" in listed[0]
    assert len(listed) == len(small) + 2
    assert "| GPT 1.7B | a100-sxm-80gb | megatron-2021 | tp1 pp1 mb16" in listed[-2]
    assert listed[-2].endswith("| 931.3 GiB | 79.2 GiB |")


def test_a_validation_without_predictions_says_nothing() -> None:
    assert not list(unfit_lines(Validation(rows=())))
