"""What is read of a launch file: the blocks of a scenario, and what had to be assumed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import ceil
from typing import Any

from parsim.cluster.hardware import System
from parsim.cost.job import ADAMW
from parsim.errors import InputError

GUESSED = "the number of nodes is not known"


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedJob:
    """Blocks of a scenario as their keys, and notes.

    `global_batch_size` is 0 where the file says none, and each replica has one micro-batch.
    `devices` are those that the file names, None where it names none; dp follows from them. `nodes`
    are those of a file that does not say how many devices a node has, and `guessed` is why nothing
    is known of either. `words` are the file's words for keys of a scenario, by which errors call
    them.
    """

    model: Mapping[str, Any]
    plan: Mapping[str, Any]
    global_batch_size: int
    precision: str
    software: str | Mapping[str, Any]
    clip: float | None = None
    optimizer: str = ADAMW.name
    devices: int | None = None
    nodes: int | None = None
    guessed: str = ""
    notes: tuple[str, ...] = ()
    words: Mapping[str, str] = field(default_factory=dict)

    def in_its_words(self, message: str) -> str:
        """A message of a scenario's reader, with the file's words for the keys that it names."""
        keys = dict.fromkeys(re.findall(r"\b[a-z_]+(?==)", message))
        told = [f"{key} is {self.words[key]}" for key in keys if key in self.words]
        return f"{message} ({', '.join(told)})" if told else message

    def document(self, system: System, nodes: int | None, source: str) -> dict[str, Any]:
        """The scenario on so many nodes of a system; None: as many as the file or the plan needs.

        Raises:
            InputError: the plan does not fill the nodes.
        """
        nodes, devices = self._nodes(system, nodes)
        cluster: dict[str, Any] = {"system": system.id, "nodes": nodes}
        if devices != system.devices_per_node:
            cluster["devices_per_node"] = devices
        return {
            "description": f"read from {source}",
            "model": dict(self.model),
            "cluster": cluster,
            "software": self.software,
            "training": {
                "global_batch_size": self.global_batch_size or self._one_each(nodes * devices),
                "precision": self.precision,
                **({} if self.clip is None else {"clip": self.clip}),
                **({} if self.optimizer == ADAMW.name else {"optimizer": self.optimizer}),
            },
            "plan": dict(self.plan) | ({"zero_stage": 0} if self._alone(nodes * devices) else {}),
            "search": {},
        }

    def assumed(self, system: System, nodes: int | None) -> tuple[str, ...]:
        """The notes, and how many nodes of a system are taken where nobody says; as `document`."""
        notes, (count, devices) = list(self.notes), self._nodes(system, nodes)
        if not self.global_batch_size:
            notes.append(
                "no batch is given: one micro-batch of each replica, as Megatron-LM takes it"
            )
        if self._alone(count * devices):
            notes.append("one data-parallel rank holds the model: nothing is sharded over others")
        if self.guessed and nodes is None:
            notes.append(
                f"{GUESSED} ({self.guessed}): {ceil(self._fewest() / system.devices_per_node)} x "
                f"{system.id} assumed, as few as the plan fits; give --nodes"
            )
        return tuple(notes)

    def _one_each(self, devices: int) -> int:
        """Samples of one micro-batch of each replica."""
        return int(self.plan["microbatch_size"]) * devices // self._ranks()

    def _alone(self, devices: int) -> bool:
        """Whether a plan shards over the data-parallel ranks of known devices, and has but one.

        One in each instance of the optimizer, where there are several.
        """
        instances = int(self.plan.get("dp_replicate", 1))
        alone = devices * int(self.plan.get("cp", 1)) == self._ranks() * instances
        return alone and bool(self.plan.get("zero_stage")) and not self.guessed

    def _nodes(self, system: System, asked: int | None) -> tuple[int, int]:
        """Nodes, and the devices of each that take part: all, unless one node is not filled.

        A launcher's node can be a part of the system's, as a tray of a rack is.

        Raises:
            InputError: the plan does not fill the nodes.
        """
        ranks, each, fewest = self._ranks(), system.devices_per_node, self._fewest()
        nodes = asked or self.nodes or ceil(fewest / each)
        guess_fits = bool(self.guessed) and nodes * each % ranks == 0
        filled = self.nodes is not None or guess_fits
        devices = min(each, fewest) if nodes == 1 and not filled else each
        if nodes * devices % ranks:
            raise InputError(
                f"tp x pp x cp = {ranks} does not divide the {nodes * devices} devices of "
                f"{nodes} x {system.id}; give --nodes or another --system"
            )
        return nodes, devices

    def _fewest(self) -> int:
        """The devices that the file names, or that its plan fills."""
        replicas = int(self.plan.get("dp_replicate", 1)) * int(self.plan.get("dp_shard", 1))
        return self.devices or self._ranks() * replicas

    def _ranks(self) -> int:
        """Ranks that hold one model.

        Raises:
            InputError: a degree below 1.
        """
        ranks = 1
        for axis in ("tp", "pp", "cp"):
            degree = int(self.plan.get(axis, 1))
            if degree < 1:
                raise InputError(self.in_its_words(f"{axis}={degree} must be at least 1"))
            ranks *= degree
        return ranks
