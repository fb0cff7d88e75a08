"""Collectives and sizes that somebody asks for, in Python or on the command line, checked alike.

kinds    "all_reduce", or several names in a list
sizes    1048576, "64MiB", or several in a list: whole bytes from 1 to 2^50
"""

from __future__ import annotations

from collections.abc import Iterable
from numbers import Real
from typing import cast, get_args

from parsim.arguments import known_name
from parsim.cost.collective.kinds import Algorithm
from parsim.cost.collective.nccl import Protocol
from parsim.errors import InputError, shown
from parsim.sim.benchmark.collective_sweep import COLLECTIVES, Collective
from parsim.units import parse_quantity

LARGEST = 2**50
"""Bytes of a collective: 1024 TiB."""


def asked_kinds(words: Iterable[object], label: str) -> tuple[Collective, ...]:
    """The collectives of these names, each once, in the order in which they are named.

    Raises:
        InputError: a name is unknown; `label` stands in front of it.
    """
    return tuple(dict.fromkeys(_kind(word, label) for word in words))


def _kind(word: object, label: str) -> Collective:
    return cast("Collective", known_name(label, word, COLLECTIVES))


def asked_algorithm(word: str | None, label: str) -> Algorithm | None:
    """The algorithm of this name.

    Raises:
        InputError: there is none.
    """
    if word is None:
        return None
    return cast("Algorithm", known_name(label, word, get_args(Algorithm)))


def asked_protocol(word: str | None, label: str) -> Protocol | None:
    """The protocol of this name.

    Raises:
        InputError: there is none.
    """
    if word is None:
        return None
    return cast("Protocol", known_name(label, word, get_args(Protocol)))


def asked_size(size: object, label: str) -> int:
    """Bytes of a number, or of a text with a unit.

    Raises:
        InputError: no whole number of bytes from 1 to `LARGEST`, or a text without a unit.
    """
    try:
        value = parse_quantity(size, "bytes", "64MiB") if isinstance(size, str) else size
    except InputError as wrong:
        raise InputError(f"{label}: {wrong}") from None
    number = isinstance(value, Real) and not isinstance(value, bool)
    amount = float(cast("Real", value)) if number else 0.0
    if not 1.0 <= amount <= LARGEST or not amount.is_integer():
        raise InputError(
            f"{label}: {shown(str(size).strip())} is not a whole number of bytes from 1 B to "
            f"1024 TiB"
        )
    return int(amount)
