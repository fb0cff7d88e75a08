"""Starts torchrun so that it and its ranks end when the process that started it does."""

from __future__ import annotations

import os
import socket
import sys

from executor.faults.parent import end_with_parent
from parsim.launch.ranks import PARENT


def main() -> None:
    """Be torchrun, bound to the parent; the ranks are bound to this process in turn."""
    end_with_parent()
    os.environ[PARENT] = str(os.getpid())
    if "--standalone" in sys.argv:
        socket.getfqdn = _unasked
    from torch.distributed import run

    run.main()


def _unasked(name: str = "") -> str:
    """A machine's name as it stands, for torchrun's notes of events.

    Asking for the domain behind it takes seconds, several times a run, where no server of names
    answers. Where ranks of several nodes meet, torchrun does need it.
    """
    return name or socket.gethostname()


if __name__ == "__main__":
    main()
