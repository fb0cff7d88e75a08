"""What the options of `parsim collectives` ask for: kinds, sizes, what is forced, which groups."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from parsim.errors import InputError, shown
from parsim.units import whole_number

if TYPE_CHECKING:
    from parsim.cost.collective.kinds import Algorithm
    from parsim.cost.collective.nccl import Protocol
    from parsim.sim.benchmark.collective_sweep import Collective

PREDICTED_SIZES, MEASURED_SIZES = "8B..8GiB", "4KiB..64MiB"
MOST_AT_ONCE = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepRequest:
    """What the options ask for; `kinds` is None where they name none."""

    kinds: tuple[Collective, ...] | None
    sizes: tuple[int, ...]
    algorithm: Algorithm | None
    protocol: Protocol | None


def read_request(
    kind: str | None,
    sizes: str | None,
    factor: int | None,
    algorithm: str | None,
    protocol: str | None,
    *,
    measure: bool,
) -> SweepRequest:
    """Read the options; without sizes a range that suits a prediction or a measurement.

    Raises:
        InputError: an unknown kind, algorithm or protocol, or sizes that are none.
    """
    from parsim.sim.benchmark.asked import asked_algorithm, asked_kinds, asked_protocol
    from parsim.sim.benchmark.collective_sweep import COLLECTIVES

    kinds = None
    if kind is not None:
        named = asked_kinds((word.strip() for word in kind.split(",")), "--kind ")
        kinds = tuple(known for known in COLLECTIVES if known in named)
    default = MEASURED_SIZES if measure else PREDICTED_SIZES
    step = factor or (4 if measure else 2)
    return SweepRequest(
        kinds=kinds,
        algorithm=asked_algorithm(algorithm or None, "--algorithm "),
        protocol=asked_protocol(protocol or None, "--protocol "),
        sizes=read_sizes(default if sizes is None else sizes, step),
    )


def read_sizes(text: str, factor: int) -> tuple[int, ...]:
    """Sizes in bytes of `8B..8GiB` (each `factor` times the one before) or of a list.

    Raises:
        InputError: a size without unit, of no whole number of bytes, or a range that goes down.
    """
    low, dots, high = text.partition("..")
    if not dots:
        return tuple(sorted({_size(text, word) for word in text.split(",")}))
    first, last = _size(text, low), _size(text, high)
    if first > last:
        raise InputError(
            f"--sizes {shown(text)}: {low} is more than {high}; write the smaller one first"
        )
    sizes = [first]
    while sizes[-1] * factor <= last:
        sizes.append(sizes[-1] * factor)
    return tuple(sizes)


def _size(text: str, word: str) -> int:
    from parsim.sim.benchmark.asked import asked_size

    return asked_size(word, f"--sizes {shown(text)}")


def check_together(
    concurrent: int | None,
    group: str | None,
    ranks: int | None,
    request: SweepRequest,
    *,
    measure: bool,
    nodes: int,
) -> None:
    """Refuse options that contradict each other.

    Raises:
        InputError: naming them.
    """
    if group is not None and (ranks is not None or concurrent is not None):
        raise InputError(
            "--group says how many ranks and groups there are; leave out --ranks and --concurrent"
        )
    if concurrent is not None and not 1 <= concurrent <= MOST_AT_ONCE:
        raise InputError(f"--concurrent {concurrent}: allowed are 1 to {MOST_AT_ONCE} groups")
    if not measure:
        return
    if nodes > 1 or group is not None:
        raise InputError(
            "--measure runs on this machine alone; say the ranks with --ranks and the groups at "
            "once with --concurrent instead of --nodes or --group"
        )
    if request.algorithm or request.protocol:
        raise InputError(
            "--measure lets the library choose; leave out --algorithm and --protocol (and set "
            "NCCL_ALGO or NCCL_PROTO yourself)"
        )


def read_degrees(text: str) -> dict[str, int]:
    """Axes and degrees of `tp=8,dp=2`, in that order.

    Raises:
        InputError: no AXIS=DEGREE, or an axis twice.
    """
    degrees: dict[str, int] = {}
    for pair in text.split(","):
        axis, sign, degree = (part.strip() for part in pair.partition("="))
        if not sign or not axis.isidentifier() or not whole_number(degree):
            raise InputError(
                f"--group {shown(text)}: '{shown(pair)}' is not AXIS=DEGREE; e.g. --group tp=8,dp=2"
            )
        if axis in degrees:
            raise InputError(f"--group {shown(text)}: axis {shown(axis)} stands there twice")
        degrees[axis] = int(degree)
    return degrees
