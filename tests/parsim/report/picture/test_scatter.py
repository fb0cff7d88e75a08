"""Points of the accuracy report's picture."""

from __future__ import annotations

from parsim.report.picture.scatter import COLOURS, MARKS, look_of


def test_no_two_tables_look_alike() -> None:
    looks = [tuple(look_of(number).values()) for number in range(len(COLOURS) * len(MARKS))]
    assert len(set(looks)) == len(looks)
