"""Rows of measured runs, as text cells."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from parsim.validation.step.row_reader import OPTIONAL
from parsim.validation.tables import shipped_tables
from parsim.validation.validate import read_table

Row = dict[str, str]
MakeRow = Callable[..., Row]


def shipped(name: str) -> Path:
    """A public table by the start of its name."""
    (path,) = [path for path in shipped_tables() if path.name.startswith(name)]
    return path


@pytest.fixture
def row() -> MakeRow:
    """The first row of Megatron's weak-scaling table, with changes, in further columns too."""
    first = read_table(shipped("megatron_sc21_table1"))[0]

    def make(**changes: str) -> Row:
        unknown = set(changes) - {*first, *OPTIONAL}
        assert not unknown
        return {**first, **changes}

    return make
