"""The groups of ranks whose collectives a calibration times: those of the plans that fit here."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from executor.devices.capacity import most_ranks
from executor.devices.machine import DeviceReport
from parsim.plan import PlanTable
from parsim.planner.space import enumerate_plans
from parsim.scenario.record import Scenario

USUAL_CPU = 2
"""Ranks of a group where no scenario says: each takes a core and 0.3 GiB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankGroups:
    """Sizes of groups: those that are timed, of them those with all-to-alls, and those left out.

    `devices` are what the ranks have, so that more ranks than these share them.
    """

    sizes: tuple[int, ...]
    experts: tuple[int, ...] = ()
    left_out: tuple[int, ...] = ()
    devices: int

    @property
    def world(self) -> int:
        """Ranks that measure: as many as the largest group has, or one."""
        return max(self.sizes, default=1)

    @property
    def oversubscribed(self) -> bool:
        """Whether ranks share devices."""
        return self.world > self.devices

    def to_json(self) -> dict[str, Any]:
        """Plain data for the document."""
        return {
            "sizes": list(self.sizes),
            "left_out": list(self.left_out),
            "ranks": self.world,
            "devices": self.devices,
            "oversubscribed": self.oversubscribed,
        }

    def words(self, kind: str) -> str:
        """What is timed, for people; `kind` of device."""
        if not self.sizes:
            return "no groups: this machine has one device that ranks cannot share"
        shared = f", sharing {self.devices} {_name(kind, self.devices)}: oversubscribed"
        listed = ", ".join(map(str, self.sizes))
        return f"groups of {listed} ranks{shared if self.oversubscribed else ''}"

    def unmeasured(self, kind: str, *, shareable: bool) -> str:
        """What is left out and why, empty if nothing is."""
        if not self.left_out:
            return ""
        way = "; --oversubscribe lets ranks share them" if shareable else ""
        listed = ", ".join(map(str, self.left_out))
        return (
            f"groups of {listed} ranks are not measured: this machine has {self.devices} "
            f"{_name(kind, self.devices)}{way}"
        )


def rank_groups(
    report: DeviceReport, scenarios: Iterable[Scenario], *, oversubscribe: bool = False
) -> RankGroups:
    """What this machine holds of the groups of some scenarios, and of the usual ones.

    More ranks than devices only where that is asked for, as for `parsim run`; but one GPU that the
    environment lets ranks share has a pair of them. Usual are pairs, and on GPUs every power of
    two.
    """
    wanted, experts = set[int](), set[int]()
    for scenario in scenarios:
        of_plans, of_experts = _sizes(scenario)
        wanted |= of_plans
        experts |= of_experts
    most = report.count
    if oversubscribe and report.shareable:
        most = max(most, most_ranks(report))
    elif report.kind == "cuda" and report.shareable:
        most = max(most, 2)
    usual = USUAL_CPU if report.kind == "cpu" else report.count
    listed = {2**i for i in range(1, 16) if 2**i <= max(usual, 2)} | wanted
    return RankGroups(
        sizes=tuple(sorted(size for size in listed if 2 <= size <= most)),
        experts=tuple(sorted(size for size in experts if 2 <= size <= most)),
        left_out=tuple(sorted(size for size in wanted if size > most)),
        devices=report.count,
    )


def _sizes(scenario: Scenario) -> tuple[set[int], set[int]]:
    """Sizes of the groups of a scenario's plan or plan space, above 1: of all, and of experts."""
    if scenario.plan is not None:
        table: PlanTable | None = PlanTable.of([scenario.plan])
    else:
        table = enumerate_plans(scenario.job, scenario.plan_space()).table
    if table is None:
        return set(), set()
    columns = (table.tp, table.cp, table.shards, table.dp_replicate, table.world_size)
    sizes = {int(size) for column in columns for size in column if size > 1}
    experts = {int(size) for size in table.ep if size > 1}
    return sizes | experts, experts


def _name(kind: str, count: int) -> str:
    singular = "GPU" if kind == "cuda" else "CPU core"
    return singular if count == 1 else f"{singular}s"
