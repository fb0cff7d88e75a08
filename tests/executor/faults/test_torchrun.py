"""What is changed of torchrun before it runs."""

from __future__ import annotations

import socket
import sys

import pytest

pytest.importorskip("torch")

from torch.distributed import run

from executor.faults import torchrun
from parsim.launch.ranks import PARENT


@pytest.mark.parametrize(("word", "name"), [("--standalone", "here"), ("--nnodes=2", "here.far")])
def test_nobody_is_asked_for_the_name_of_a_machine_alone(
    word: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    monkeypatch.setattr(socket, "gethostname", lambda: "here")
    monkeypatch.setattr(socket, "getfqdn", lambda name="": "here.far")
    monkeypatch.setattr(torchrun, "end_with_parent", lambda: None)
    monkeypatch.setattr(sys, "argv", ["torchrun", word])
    monkeypatch.setattr(run, "main", lambda: told.extend((socket.getfqdn(), socket.getfqdn("x"))))
    monkeypatch.setenv(PARENT, "1")
    torchrun.main()
    assert told == [name, "x" if name == "here" else name]
