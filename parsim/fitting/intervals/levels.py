"""Levels at which a question can be new: which groups of runs are left out together at each.

A model's runs, a device's, a release's, those of a kind of plan. How much worse runs are predicted
whose group was left out, and how wide that makes intervals, is found in `novelty.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from parsim.fitting.intervals.residuals import Residual
from parsim.sim.confidence.known_errors import KNOWN, WIDTH

FOLDS = 10
"""Parts of which each is left out once, where nothing about a question is new."""
ORDER = ("release", "model", "mixture", "kind", "size", "software", "device")
"""Levels by how little is known where they are new, as their factors come out."""
FAR = 0.5
"""Runs on more than this share of a group's most devices are those beyond its scale."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """A way in which a question can be new: which groups of runs are left out together.

    `figure` is the one of LEVELS whose factor it gives, or `reach` per factor e; empty where it
    gives nothing of its own. Where `only`, runs that are new in another way too are not judged,
    and where it gives a factor those that it decides: new in its way, and in none less known.
    """

    name: str
    about: str
    groups: Callable[[Sequence[Residual]], Mapping[Hashable, list[Residual]]]
    figure: str = ""
    only: bool = False

    def decides(self, new: Sequence[str]) -> bool:
        """Whether a run that is new in these of LEVELS, its group left out, says how wide it is."""
        if self.figure in ORDER:
            return max(new, key=ORDER.index, default="") == self.figure
        return not (self.only and new)


def by(
    key: Callable[[Residual], Iterable[Hashable]],
) -> Callable[[Sequence[Residual]], dict[Hashable, list[Residual]]]:
    """Groups of runs by what each run has; a run may be in several."""

    def grouped(runs: Sequence[Residual]) -> dict[Hashable, list[Residual]]:
        groups: dict[Hashable, list[Residual]] = {}
        for run in runs:
            for value in key(run):
                groups.setdefault(value, []).append(run)
        return groups

    return grouped


def _kinds(run: Residual) -> list[Hashable]:
    return [(run.software, kind) for kind in run.standing.kinds if kind != "experts"]


def _releases(run: Residual) -> list[Hashable]:
    return [(run.software, run.standing.release)] if run.standing.release else []


def _dense(run: Residual) -> list[Hashable]:
    return [] if "experts" in run.standing.kinds else [run.standing.model]


def _mixtures(run: Residual) -> list[Hashable]:
    return [run.standing.model] if "experts" in run.standing.kinds else []


def beyond(runs: Sequence[Residual]) -> dict[Hashable, list[Residual]]:
    """The runs on the most devices of each device and software, where others are on fewer."""
    groups: dict[Hashable, list[Residual]] = {}
    for key, members in by(lambda run: [(run.device, run.software)])(runs).items():
        most = max(run.sizes["devices"] for run in members)
        large = [run for run in members if run.sizes["devices"] > FAR * most]
        if len(large) < len(members):
            groups[key] = large
    return groups


def widest(runs: Sequence[Residual]) -> dict[Hashable, list[Residual]]:
    """The runs of the widest dense models of a device and software, where others are narrower."""
    groups: dict[Hashable, list[Residual]] = {}
    dense = [run for run in runs if _dense(run) and WIDTH in run.sizes]
    for key, members in by(lambda run: [(run.device, run.software)])(dense).items():
        most = max(run.sizes[WIDTH] for run in members)
        wide = [run for run in members if run.sizes[WIDTH] == most]
        if len(wide) < len(members):
            groups[key] = wide
    return groups


def stacks(runs: Sequence[Residual]) -> dict[Hashable, list[Residual]]:
    """The runs of each software, and those on one device where it has others elsewhere."""
    everywhere = by(lambda run: [run.software])(runs)
    here = by(lambda run: [(run.device, run.software)])(runs)
    apart = {
        key: left for key, left in here.items() if len(left) < len(everywhere[left[0].software])
    }
    return {**everywhere, **apart}


def folds(runs: Sequence[Residual]) -> dict[Hashable, list[Residual]]:
    """FOLDS parts of the cells, whole cells each, so that no repeat tells what is left out."""
    number = {cell: at % FOLDS for at, cell in enumerate(sorted({run.cell for run in runs}))}
    return by(lambda run: [number[run.cell]])(runs)


SOURCE = "source"
KNOWN_LEVEL = Level(name="nothing", about="other runs of its model, device and release",
                    groups=folds, figure=KNOWN, only=True)  # fmt: skip
LEVELS = (
    KNOWN_LEVEL,
    Level(name="model, dense", about="no run of its layers and width", groups=by(_dense),
          figure="model"),
    Level(name="model, experts", about="no run of its layers and width", groups=by(_mixtures),
          figure="mixture"),
    Level(name="kind of plan", about="context parallel, 8 or 4 bit, ZeRO-3: new to the software",
          groups=by(_kinds), figure="kind"),
    Level(name="size", about="a dense model wider than any of the software on the device",
          groups=widest, figure="size"),
    Level(name="release", about="another release of the software", groups=by(_releases),
          figure="release"),
    Level(name="software", about="a described stack without any run, or any on the device",
          groups=stacks, figure="software"),
    Level(name="device", about="a device without any run", groups=by(lambda run: [run.device]),
          figure="device"),
    Level(name="scale", about="more than twice the devices of any run", groups=beyond,
          figure="reach"),
    Level(name=SOURCE, about="everything of a table", groups=by(lambda run: [run.table])),
)  # fmt: skip
"""A level's factor comes after those that it is not below; a release's alone may be below 1."""
