"""The nodes of a run: how many, how many ranks stand on each, and where they meet.

torchrun starts the ranks of one node. Those of several nodes find each other at an endpoint that
all of them are given, under a name that all of them work out alike:

    node A: parsim run PLAN --nnodes 2 --rdzv-endpoint A:29400 -> torchrun -> ranks 0..3
    node B: the same                                           -> torchrun -> ranks 4..7

Which node holds rank 0 is settled there, not by the order of the commands.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from parsim.errors import InputError, shown

_ENDPOINT = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_.-]+):(?P<port>\d{1,5})")
_PORTS = range(1, 2**16)


@dataclass(frozen=True, slots=True, kw_only=True)
class Nodes:
    """`count` machines with equally many ranks; `endpoint` is where they meet, as HOST:PORT.

    Raises:
        InputError: no node at all, or an endpoint that is none.
    """

    count: int = 1
    endpoint: str | None = None

    def __post_init__(self) -> None:
        if self.count < 1:
            raise InputError(f"--nnodes={self.count} must be at least 1")
        if self.endpoint is not None:
            host_of(self.endpoint)

    @classmethod
    def asked(cls, count: int | None, endpoint: str | None) -> Nodes:
        """The nodes that options name.

        Raises:
            InputError: an endpoint without a number of nodes, or as above.
        """
        if endpoint is not None and count is None:
            raise InputError(
                f"--rdzv-endpoint={shown(endpoint)} is where several nodes meet; "
                "say how many with --nnodes N, or leave it out to run on one machine"
            )
        return cls(count=1 if count is None else count, endpoint=endpoint)

    @property
    def on_one_machine(self) -> bool:
        """Whether all ranks reach each other without a network."""
        if self.count == 1:
            return True
        host = host_of(self.endpoint) if self.endpoint else ""
        return host in ("localhost", "::1") or re.fullmatch(r"127(\.\d+){3}", host) is not None

    def share(self, world_size: int) -> int:
        """Ranks on each node.

        Raises:
            InputError: they cannot be shared out equally.
        """
        if world_size % self.count:
            fitting = [str(n) for n in range(1, world_size + 1) if world_size % n == 0]
            raise InputError(
                f"--nnodes={self.count} does not divide world size {world_size}, and every node "
                f"holds equally many ranks; allowed: {', '.join(fitting)}"
            )
        return world_size // self.count

    def check_meeting(self) -> None:
        """Refuse several nodes that were not told where to meet.

        Raises:
            InputError: no endpoint.
        """
        if self.count > 1 and self.endpoint is None:
            raise InputError(
                f"--nnodes={self.count} needs --rdzv-endpoint HOST:PORT, the same on every node: "
                "the name of one of them and a free port there, e.g. node0:29400"
            )

    def torchrun_words(
        self, world_size: int, *, name: str = "", timeout: float = 0.0, endpoint: str | None = None
    ) -> list[str]:
        """Arguments of torchrun on each node; it waits `timeout` seconds for the others.

        Several nodes meet at the `endpoint`, by default their own, under a `name`. One node, and
        those on one machine, would else look up its name, which need not lead anywhere.
        """
        here = f"--nproc-per-node={self.share(world_size)}"
        if self.count == 1:
            return ["--standalone", "--local-addr=127.0.0.1", here]
        if endpoint is None:
            self.check_meeting()
        seconds = max(1, round(timeout))
        return [
            f"--nnodes={self.count}",
            "--rdzv-backend=c10d",
            f"--rdzv-endpoint={endpoint or self.endpoint}",
            f"--rdzv-id={name}",
            f"--rdzv-conf=join_timeout={seconds},read_timeout={seconds}",
            *(["--local-addr=127.0.0.1"] if self.on_one_machine else []),
            here,
        ]


ONE_NODE: Final = Nodes()
"""This machine alone."""


def host_of(endpoint: str) -> str:
    """The host of HOST:PORT, an IPv6 address without its brackets.

    Raises:
        InputError: it has another form.
    """
    match = _ENDPOINT.fullmatch(endpoint)
    if match is None or int(match["port"]) not in _PORTS:
        raise InputError(
            f"--rdzv-endpoint='{shown(endpoint)}' is not HOST:PORT with a port from {_PORTS[0]} to "
            f"{_PORTS[-1]}; e.g. node0:29400"
        )
    return match["host"].strip("[]")


def meeting_name(words: Sequence[str]) -> str:
    """The name of a run, from what all its nodes were told: equal words, equal names."""
    import hashlib

    return "parsim-" + hashlib.sha256("\n".join(words).encode()).hexdigest()[:12]
