"""What a choice among plans and cluster sizes holds, is to be best in, and must keep to."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, get_args

from parsim.errors import InputError, alternatives, matching, shown
from parsim.planner.ranked import Ranked
from parsim.results import Result
from parsim.training_run import TrainingGoal
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


Objective = Literal["time", "cost", "energy", "memory", "devices"]
OBJECTIVES: Final = get_args(Objective)

_WHOLE: Final = ("cost", "energy")
"""Objectives that only a whole run has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a choice must keep to: seconds of the whole run with interruptions, US dollars."""

    deadline: float | None = None
    budget: float | None = None

    def broken(self, choice: Choice) -> str | None:
        """Which limit a choice breaks, with its numbers; None where it keeps all."""
        run = choice.ranked.run
        if run is None:
            return None
        if self.deadline is not None and run.elapsed.value > self.deadline:
            return (
                f"takes {format_span(run.elapsed.value)}, more than the deadline of "
                f"{format_span(self.deadline)}"
            )
        if self.budget is not None and run.cost is not None and run.cost.value > self.budget:
            return f"costs {run.cost.value:,.0f} US dollars, more than {self.budget:,.0f}"
        return None


def read_objective(text: str) -> Objective:
    """An objective by its name.

    Raises:
        InputError: there is none of that name.
    """
    name = matching(text, OBJECTIVES)
    if name is None:
        raise InputError(f"objective '{shown(text)}' is unknown{alternatives(text, OBJECTIVES)}")
    return name  # type: ignore[return-value]


def check_goal(objective: Objective, limits: Limits, goal: TrainingGoal) -> None:
    """Refuse an objective or a limit of a whole run where the scenario names no tokens.

    Raises:
        InputError: says what to state.
    """
    stated = {"a deadline": limits.deadline, "a budget": limits.budget}
    asked = [name for name, value in stated.items() if value is not None]
    asked += [f"objective '{objective}'"] if objective in _WHOLE else []
    if asked and goal.tokens is None:
        raise InputError(
            f"{asked[0]} is of a whole run, and training.tokens is not stated; add it to the "
            f"scenario, or e.g. --set training.tokens=300B"
        )
    if objective == "devices" and limits.deadline is None:
        raise InputError("objective 'devices' needs a deadline, e.g. --deadline 30d")


def _time(choice: Choice) -> float:
    run = choice.ranked.run
    return choice.ranked.step_time if run is None else run.elapsed.value


def _cost(choice: Choice) -> float:
    run = choice.ranked.run
    if run is None or run.cost is None:
        raise InputError(
            "the catalog has no price of every device; --price 2.5 states the dollars of a device "
            "and hour"
        )
    return run.cost.value


def _energy(choice: Choice) -> float:
    run = choice.ranked.run
    if run is None or run.energy is None:
        raise InputError(
            "the catalog has no power of every device; write `power` in a device file of your own"
        )
    return run.energy.value


MEASURES: Mapping[Objective, Callable[[Choice], float]] = {
    "time": _time,
    "cost": _cost,
    "energy": _energy,
    "memory": lambda choice: choice.ranked.peak_allocated,
    "devices": lambda choice: float(choice.devices),
}
"""What each objective makes least; at equal values the faster choice comes first."""
