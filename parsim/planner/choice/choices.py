"""What a choice among plans and cluster sizes holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from parsim.planner.result import Ranked
from parsim.results import Result
from parsim.units import format_seconds, format_span

SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A plan on so many nodes; `on_front`: no other one beats it in time, memory and cost."""

    nodes: int
    devices: int
    ranked: Ranked
    on_front: bool = False

    def to_json(self) -> dict[str, Any]:
        """Plain data with units in the names."""
        return {
            "nodes": self.nodes,
            "devices": self.devices,
            "on_front": self.on_front,
            **self.ranked.to_json(),
        }


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Choices(Result):
    """Plans on clusters of several sizes, the best by `objective` first.

    `left_out` says by node count why none of its plans is among the choices; `optimality` what is
    proven. `legal` is how many legal plans were looked at, on all node counts together. `front`:
    these are all plans that none beats in time and memory on as many nodes.
    """

    choices: tuple[Choice, ...]
    objective: str
    optimality: str
    left_out: dict[int, str]
    legal: int
    front: bool = False

    @property
    def headline(self) -> str:
        """The best choice."""
        best = self.choices[0]
        run = best.ranked.run
        time = f", {format_span(run.elapsed.value)} in all" if run else ""
        return (
            f"least {self.objective}: {best.nodes} nodes, {best.ranked.plan.label()}, "
            f"{format_seconds(best.ranked.step_time)}{time}"
        )

    def to_json(self) -> dict[str, Any]:
        """The document that `parsim search --json` prints where it chooses among clusters."""
        return {
            "schema_version": SCHEMA_VERSION,
            "objective": self.objective,
            "choices": [choice.to_json() for choice in self.choices],
            "left_out_nodes": {str(nodes): why for nodes, why in self.left_out.items()},
            "legal_plans": self.legal,
            "optimality": self.optimality,
        }

    def records(self) -> list[dict[str, Any]]:
        """One row per choice."""
        return [
            {"nodes": choice.nodes, "on_front": choice.on_front, **choice.ranked.record()}
            for choice in self.choices
        ]


def front_of(measures: Sequence[tuple[float, ...]]) -> list[bool]:
    """Which points no other one beats: none that is nowhere larger and somewhere smaller."""
    return [
        not any(
            all(a <= b for a, b in zip(other, point, strict=True)) and other != point
            for other in measures
        )
        for point in measures
    ]
