"""A plugin of pytest that writes what a failed test says at once, not behind all other tests.

A part of the hour that is cut, or whose process dies, has kept then what it has seen fail:
`python -m pytest -p executor.first_hour.at_once`.
"""

from __future__ import annotations

from typing import Any


class Reporter:
    """Writes each failure on the terminal of a session."""

    def __init__(self, terminal: Any) -> None:  # noqa: ANN401 - pytest is no dependency here
        self._terminal = terminal

    def pytest_runtest_logreport(self, report: Any) -> None:  # noqa: ANN401
        """Write what a test, or what it stands on, failed with."""
        if report.failed:
            self._terminal.write_line("")
            self._terminal.write_line(report.longreprtext)
            self._terminal.flush()


def pytest_sessionstart(session: Any) -> None:  # noqa: ANN401
    """Join the session, where it has a terminal."""
    plugins = session.config.pluginmanager
    terminal = plugins.getplugin("terminalreporter")
    if terminal is not None:
        plugins.register(Reporter(terminal))
