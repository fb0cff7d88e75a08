"""What the tests of parsim share: its command line in this process."""

from __future__ import annotations

import pytest

from tests.commands import Cli, runner


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Cli:
    """The command line, whose words it is called with."""
    return runner(capsys)
