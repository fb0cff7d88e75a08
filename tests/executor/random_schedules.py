"""Random legal schedules: any placement, any order that respects what depends on what."""

from __future__ import annotations

import random

from parsim.schedule import Action, Kind, Schedule


def random_schedule(seed: int, *, pp: int, full_backward: bool = False) -> Schedule:
    """Some stages per rank, anywhere; backwards full or split, chosen one by one."""
    rng = random.Random(seed)
    stages = rng.randint(pp, 2 * pp)
    stage_rank = list(range(pp)) + [rng.randrange(pp) for _ in range(stages - pp)]
    rng.shuffle(stage_rank)
    m = rng.choice([2, 4, 8])
    split = {
        (stage, mb): not full_backward and rng.random() < 0.5
        for stage in range(stages)
        for mb in range(m)
    }
    rows: list[list[Action]] = [[] for _ in range(pp)]
    ready = [Action(0, Kind.F, mb) for mb in range(m)]
    while ready:
        action = ready.pop(rng.randrange(len(ready)))
        rows[stage_rank[action.stage]].append(action)
        ready.extend(_enabled(action, stages, split))
    return Schedule(
        name=f"random {seed}",
        ranks=tuple(map(tuple, rows)),
        stage_rank=tuple(stage_rank),
        num_microbatches=m,
    )


def _enabled(action: Action, stages: int, split: dict[tuple[int, int], bool]) -> list[Action]:
    """What may run once an action has."""
    stage, kind, mb = action

    def backward(s: int) -> Action:
        return Action(s, Kind.I if split[s, mb] else Kind.B, mb)

    if kind == Kind.F:
        return [backward(stage) if stage == stages - 1 else Action(stage + 1, Kind.F, mb)]
    if kind == Kind.W:
        return []
    after = [backward(stage - 1)] if stage else []
    return [*after, Action(stage, Kind.W, mb)] if kind == Kind.I else after
