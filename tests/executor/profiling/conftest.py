"""The file of networks that a user would have profiled."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def code(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with the test module's `CODE`."""
    file = tmp_path_factory.mktemp("code") / "nets.py"
    file.write_text(request.module.CODE, encoding="utf-8")
    return file
