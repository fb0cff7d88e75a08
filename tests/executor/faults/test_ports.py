"""Ports that no other process takes between being named and being opened."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from executor.faults import ports


def test_a_port_is_free_and_not_one_that_the_system_hands_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    handed_out = tmp_path / "range"
    handed_out.write_text("25000\t60999\n")
    monkeypatch.setattr(ports, "_RANGE", handed_out)
    for _ in range(20):
        port = ports.free_port()
        assert 20_000 <= port < 25_000
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", port))


def test_a_port_in_use_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        number = taken.getsockname()[1]
        tried = iter((number, 20_123))

        class Numbers:
            def __init__(self, _seed: bytes) -> None: ...

            def randrange(self, _low: int, _high: int) -> int:
                return next(tried)

        monkeypatch.setattr("random.Random", Numbers)
        assert ports.free_port() == 20_123


def test_without_a_free_port_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    class Refused(socket.socket):
        def bind(self, _address: object) -> None:
            raise OSError("in use")

    monkeypatch.setattr("socket.socket", Refused)
    with pytest.raises(OSError, match="no free port among 100"):
        ports.free_port()
