"""Reads the figures of `interval.json`, and of networks those of `interval_networks.json`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from parsim.cost.job import NETWORKS, kind_of
from parsim.sim.confidence.known_errors.distances import Range
from parsim.sim.confidence.known_errors.errors import LEVELS, Errors, stacks_of
from parsim.sim.confidence.known_errors.groups import Group, MemoryGroup

ADDED = ("unknown_software", "reach", "memory_reach", "site")
"""Names of the figures that distances from measured runs add, one each for all groups."""


def errors_of(practice: str = "") -> Errors:
    """The shipped figures that judge a practice: those of networks, else those of transformers."""
    networks = kind_of(practice) == NETWORKS
    return _shipped("interval_networks.json" if networks else "interval.json")


def read_again() -> None:
    """Read the shipped figures anew when they are next asked for: they have just been written."""
    _shipped.cache_clear()


@cache
def _shipped(name: str) -> Errors:
    text = (files("parsim.sim.confidence") / name).read_text(encoding="utf-8")
    return read_errors(json.loads(text))


def read_errors(document: Mapping[str, Any]) -> Errors:
    """What `interval.json` holds."""
    groups = {}
    for entry in document["groups"]:
        names = {name: tuple(entry[name]) for name in ("systems", "kinds", "publishers")}
        group = Group(**{**entry, "ranges": _ranges(entry), **names})
        groups[group.device, group.software, group.release] = group
    figures = {name: float(document[name]) for name in ADDED}
    weights = {name: float(value) for name, value in document["weights"].items()}
    peaks = [MemoryGroup(**{**entry, "ranges": _ranges(entry)}) for entry in document["memory"]]
    memory = {(group.software, group.recompute): group for group in peaks}
    return Errors(
        groups=groups,
        weights=weights,
        memory=memory,
        factors={name: float(document["factors"][name]) for name in LEVELS},
        models=frozenset(document["models"]),
        stacks=stacks_of([*(software for _, software, _ in groups), *document["sites"]]),
        sites=frozenset(document["sites"]),
        **figures,
    )


def _ranges(entry: Mapping[str, Any]) -> dict[str, Range]:
    return {name: (float(low), float(high)) for name, (low, high) in entry["ranges"].items()}
