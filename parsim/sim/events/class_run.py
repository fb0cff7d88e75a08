"""What discrete events need to know of replicas that are alike: actions, prices, traffic."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from parsim.arrays import Array, Flags
from parsim.cost.step.costs import StepCosts
from parsim.errors import InputError
from parsim.schedule import Kind, Schedule
from parsim.sim.step.priced_step import PricedStep, prices_of
from parsim.sim.step.schedule_costs import action_seconds
from parsim.strategy import StepProgram


@dataclass(frozen=True, slots=True, kw_only=True)
class TrafficParts:
    """Idle seconds of the traffic inside a stage's actions, (S,).

    `inside` are the exposed exchanges of each kind of action; `context` and `routed` the shares of
    them between context ranks and between experts' ranks. `shard`, by kind of action, are gathers
    and scatters beside it; of a backward in two the gathers are in I and the scatters in W, with
    those gathers that I is too short for. `layer` is the share of an action that follows its last
    gather; 1 where shards do not overlap compute. `scatter` is the share of a gradient bucket's
    time that its reduce-scatter takes.
    """

    inside: Mapping[Kind, Array]
    shard: Mapping[Kind, Array]
    context: Array
    routed: Array
    layer: Mapping[Kind, Array]
    scatter: Array


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassRun:
    """A class of replicas as tier C runs it.

    `seconds` by kind of action are those on a device that is not slow, `slow` by how much longer
    the devices of each pipeline rank compute (1 where none is slow). `parts` say what of an action
    is traffic; on a wire that only waits nobody asks.
    """

    schedule: Schedule
    seconds: Mapping[Kind, list[float]]
    hop: list[float]
    slow: tuple[float, ...]
    parts: TrafficParts | None = None

    @classmethod
    def of(
        cls,
        schedule: Schedule,
        costs: StepCosts,
        slow: tuple[float, ...] = (),
        parts: TrafficParts | None = None,
    ) -> ClassRun:
        """Take a class's prices from its column of costs."""
        seconds = action_seconds(costs)
        return cls(
            schedule=schedule,
            seconds={kind: values[:, 0].tolist() for kind, values in seconds.items()},
            hop=costs.hop[:, 0].tolist(),
            slow=slow or (1.0,) * schedule.pp,
            parts=parts,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnableStep:
    """A step program with its prices and its classes; `sharers` (C, C) share parameters.

    `prices` have a column for each class. A program without pipelines has no `classes`, and its
    replicas are one.
    """

    program: StepProgram
    prices: Mapping[str, Array]
    sharers: Flags
    classes: tuple[ClassRun, ...] = ()

    @property
    def circles(self) -> tuple[int, ...]:
        """For each class the first of those with which it shares parameters."""
        return tuple(int(row.argmax()) for row in self.sharers)


def runnable(step: PricedStep, classes: tuple[ClassRun, ...] = ()) -> RunnableStep:
    """A priced step for tier C; without `classes`, for a wire that only waits."""
    every = range(step.num_classes)
    return RunnableStep(
        program=step.program,
        prices=prices_of(step.costs),
        sharers=step.classes.sharers,
        classes=classes or tuple(ClassRun.of(step.schedule(c), step.column(c)) for c in every),
    )


def check_shards_apart(step: PricedStep, asked: str, leave_out: str) -> None:
    """Refuse a step whose replicas of different classes exchange shards in every pass.

    Args:
        step: a priced step.
        asked: what asks for tier C, as the message begins.
        leave_out: what may be left out instead.

    Raises:
        InputError: such replicas meet in every action, which only tier B knows.
    """
    if not step.meets_in_actions:
        return
    plan = step.plan
    raise InputError(
        f"{asked}: zero_stage={plan.zero_stage} with dp_shard={plan.dp_shard} has replicas on "
        f"unlike devices exchange shards within every pass, which the discrete-event "
        f"tier does not simulate; use zero_stage 0 or 1, let dp_shard span equal replicas only, "
        f"or leave {leave_out} out"
    )
