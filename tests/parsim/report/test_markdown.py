from __future__ import annotations

from parsim.report.markdown import cell, markdown_table


def test_words_begin_at_the_left_and_numbers_end_at_the_right() -> None:
    lines = list(markdown_table("plan | step | why", [("tp=2", 1.5, "fits")], words=(0, 2)))
    assert lines == ["| plan | step | why |", "|---|--:|---|", "| tp=2 | 1.5 | fits |"]


def test_columns_may_be_given_one_by_one() -> None:
    assert list(markdown_table(["n"], [], words=())) == ["| n |", "|--:|"]


def test_a_users_text_stays_in_its_cell() -> None:
    assert cell("a|b\nc") == "a\\|b c"
