"""Lists of nodes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parsim.cluster.placement import free_devices, read_nodes
from parsim.errors import InputError
from parsim.report.text.tables import numbers


@pytest.mark.parametrize(
    ("text", "nodes"),
    [("3", (3,)), ("0-3,8", (0, 1, 2, 3, 8)), (" 5 , 1-2", (5, 1, 2)), ("7-7", (7,))],
)
def test_a_list_is_read(text: str, nodes: tuple[int, ...]) -> None:
    assert read_nodes(text) == nodes


@given(st.lists(st.integers(0, 200), min_size=1, unique=True))
def test_what_is_printed_is_read_again(nodes: list[int]) -> None:
    assert read_nodes(numbers(tuple(nodes), ",")) == tuple(nodes)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no node"),
        ("0-", "no node"),
        ("-1", "no node"),
        ("a", "no node"),
        ("3-1", "goes down"),
        ("0-3,2", "node 2 stands there twice"),
        ("99999999999", "no node"),
        ("16384", "0 to 16383"),
        ("0-9999999", "0 to 16383"),
    ],
)
def test_what_is_no_list_is_refused(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_nodes(text)


def test_devices_come_after_those_that_are_taken() -> None:
    assert free_devices([(0, 2), (2, 2)], [8, 8, 8], {2: 4}, "job") == (0, 1, 20, 21)
