"""Measured runs by device and software, a plan that is asked about, and the group nearest to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from parsim.cost.job import kind_of
from parsim.cost.layer_doubt import LayerDoubt
from parsim.sim.confidence.known_errors.distances import Range, Sizes
from parsim.sim.confidence.step_parts import Parts

ANY = "any"
"""Device or software of the figures over all of them."""
CALIBRATED = "calibrated"
"""Device of the figures of machines that were calibrated before they were predicted."""

Key = tuple[str, str, str]
"""Device, software and release of a group."""


def any_software(name: str) -> str:
    """All software with the kind of model that the one of this name is of."""
    return f"{ANY}{kind_of(name)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Scaled errors of the measured runs of one device and software, maybe of one release.

    `half` is the 80 % quantile of their size, corrected for few runs; that of CALIBRATED is of
    plain log errors. `ranges` of each size frame the runs, `systems` are theirs, `kinds` what some
    of their plans have (`kinds_of` a plan), `publishers` who measured them. `irregular` is
    the factor, above 1, by which a release differs at the least from the others that ran one of its
    plans; 0 where it is like one of them.
    """

    device: str
    software: str
    release: str = ANY
    n: int
    half: float
    ranges: Mapping[str, Range]
    systems: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    publishers: tuple[str, ...] = ()
    irregular: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryGroup:
    """Errors of measured peaks of one software in one recompute mode, log(measured / predicted).

    `half` is the 80 % quantile of plain log errors, corrected as a `Group`'s; `ranges` frame the
    sizes of the runs.
    """

    software: str
    recompute: str
    n: int
    half: float
    ranges: Mapping[str, Range]


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What an interval needs to know of a plan on a machine.

    `device`, `software` and `system` name what its constants are for, `model` the trunk of its
    model, `kinds` what its plan has that not every plan has; `generic` says that nobody described
    the software. `kernels` and `exchange` are standard deviations of the logarithm of the
    step by what a calibration has left open in kernels, and by how sure collectives are.
    `release` is the software's, where it is known, `publisher` who measured the run, where it is a
    published one. `doubt` is what a calibration has left open in
    whole layers, `steps` the log errors that runs recorded on the device leave. `messages` is what
    the strategy's messages and waits leave open, a standard deviation as `exchange`; `libraries` is
    what kernels of other libraries than those of measured devices do (`Device.library_spread`),
    `launches` what hosts do whose pace no run of the software shows (`Software.launch_spread`),
    `uneven` (ln, the upper half alone) what an uneven load of experts adds on a calibrated machine.
    """

    device: str
    software: str
    system: str
    release: str = ""
    publisher: str = ""
    calibrated: bool
    generic: bool
    sizes: Sizes
    parts: Parts
    kernels: float = 0.0
    exchange: float = 0.0
    model: str = ""
    kinds: tuple[str, ...] = ()
    doubt: LayerDoubt = field(default_factory=LayerDoubt)
    steps: tuple[float, ...] = ()
    messages: float = 0.0
    libraries: float = 0.0
    launches: float = 0.0
    uneven: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class NearestGroup:
    """The measured group nearest to a plan, and what of the plan it has seen.

    `model` says whether any run is of the plan's model, `size` whether any of the group's, of
    any release, is as wide, `new_kinds` what of the plan no run of the group has. `software` is
    "measured" here, "single" (by one publisher, who is not ours), "elsewhere" (on other devices
    alone), "described" (with runs at hand, none of this kind) or "generic" (no run is known).
    `release` is False only where one is stated and the software's runs are of other ones.
    """

    group: Group
    device: bool
    software: str
    system: bool
    release: bool = True
    model: bool = True
    size: bool = True
    new_kinds: tuple[str, ...] = ()
