"""Fixtures of this folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.commands import SMALL, Cli


@pytest.fixture
def predicted(cli: Cli, tmp_path: Path) -> Path:
    """The small scenario's timeline."""
    path = tmp_path / "predicted.json"
    assert cli("simulate", SMALL, "--timeline", path).code == 0
    return path
