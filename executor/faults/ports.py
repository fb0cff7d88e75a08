"""A port of this machine at which processes meet that one of them has yet to open."""

from __future__ import annotations

import os
import random
import socket
from contextlib import suppress
from pathlib import Path
from typing import Final

_RANGE: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")
_LOWEST: Final = 20_000
_HANDED_OUT: Final = 32_768
"""Where the ports begin that Linux hands out by itself, unless it says otherwise."""
_TRIES: Final = 100


def free_port() -> int:
    """A port that nobody listens at, below those that the system hands out by itself.

    Between this answer and its use, another process can take a port of the latter kind for any
    connection that it opens; one of these, only if it asks for that very number.

    Raises:
        OSError: none of a hundred ports was free.
    """
    numbers = random.Random(os.urandom(8))  # not the global one, which a run's seed sets
    for _ in range(_TRIES):
        port = numbers.randrange(_LOWEST, max(_LOWEST + 1000, _first_handed_out()))
        with suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            return port
    raise OSError(f"no free port among {_TRIES} from {_LOWEST} on")


def _first_handed_out() -> int:
    with suppress(OSError, ValueError, IndexError):
        return int(_RANGE.read_text().split()[0])
    return _HANDED_OUT
