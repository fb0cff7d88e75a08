"""The scenario that a run is started with."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def scenario(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A file with the test module's `SCENARIO`."""
    path = tmp_path / "tiny.yaml"
    path.write_text(request.module.SCENARIO, encoding="utf-8")
    return path
