"""Random legal schedules, and readers of the golden drawings."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from parsim.schedule.actions import Action, Kind
from parsim.schedule.schedule import Schedule

GOLDEN = Path(__file__).parents[2] / "golden"


def _needs(action: Action, last: int) -> set[Action]:
    stage, kind, mb = action
    if kind == Kind.F:
        return {Action(stage - 1, Kind.F, mb)} if stage else set()
    if kind == Kind.W:
        return {Action(stage, Kind.I, mb)}
    return {Action(stage, Kind.F, mb)} | (
        {Action(stage + 1, Kind.B, mb)} if stage < last else set()
    )


def make_random_schedule(seed: int) -> Schedule:
    """Run all actions in a random legal order on random ranks (uneven, not adjacent)."""
    rng = random.Random(seed)
    pp, m = rng.randint(1, 4), rng.randint(1, 4)
    stage_rank = [*range(pp), *(rng.randrange(pp) for _ in range(rng.randint(0, 4)))]
    rng.shuffle(stage_rank)
    last = len(stage_rank) - 1
    left: list[Action] = []
    for stage in range(last + 1):
        for mb in range(m):
            split = rng.random() < 0.4
            kinds = (Kind.F, Kind.I, Kind.W) if split else (Kind.F, Kind.B)
            left += [Action(stage, kind, mb) for kind in kinds]
    done: set[Action] = set()
    rows: list[list[Action]] = [[] for _ in range(pp)]
    while left:
        action = rng.choice([a for a in left if _needs(a, last) <= done])
        left.remove(action)
        done.add(action)
        if action.kind == Kind.I:  # for the stage above, I and B give the same
            done.add(Action(action.stage, Kind.B, action.microbatch))
        rows[stage_rank[action.stage]].append(action)
    return Schedule(
        name=f"random {seed}",
        ranks=tuple(map(tuple, rows)),
        stage_rank=tuple(stage_rank),
        num_microbatches=m,
    )


@pytest.fixture(scope="session")
def random_schedule() -> Callable[[int], Schedule]:
    return make_random_schedule


@pytest.fixture(scope="session")
def golden() -> Callable[[str], bytes]:
    return lambda name: (GOLDEN / f"{name}.txt").read_bytes()
