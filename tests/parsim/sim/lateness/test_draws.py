"""Lateness of actions: one draw a group against one a member, and sources that do not mix."""

from __future__ import annotations

import numpy as np
import pytest

from parsim.arrays import Array
from parsim.cost.jitter import Jitter
from parsim.schedule import build_schedule
from parsim.sim.lateness.draws import Block
from parsim.sim.lateness.pipelines import RankGrid, speeds
from parsim.sim.step.compiled_schedule import CompiledSchedule, compile_schedule

GRAPH = compile_schedule(build_schedule("1f1b", pp=2, num_microbatches=2))
SECONDS = 2.0


def graph_of_one() -> CompiledSchedule:
    return compile_schedule(build_schedule("1f1b", pp=1, num_microbatches=1))


def late(
    jitter: Jitter, ranks: RankGrid, *, one_by_one: bool, steps: int = 400, seed: int = 1
) -> Array:
    """Lateness of the first action, (groups, steps)."""
    apart = frozenset(range(ranks.pp)) if one_by_one else ranks.differ(jitter)
    block = Block(graph_of_one(), ranks, jitter, np.zeros(steps, dtype=np.int64), seed=seed,
                  number=0, one_by_one=apart)  # fmt: skip
    return np.array(next(block.late([0], [SECONDS])))


def two_sample(first: Array, second: Array) -> float:
    """Kolmogorov and Smirnov's distance over its 1 % critical value."""
    both = np.concatenate([first.ravel(), second.ravel()])
    a = np.searchsorted(np.sort(first.ravel()), both, side="right") / first.size
    b = np.searchsorted(np.sort(second.ravel()), both, side="right") / second.size
    critical = 1.63 * np.sqrt((first.size + second.size) / (first.size * second.size))
    return float(np.abs(a - b).max() / critical)


@pytest.mark.parametrize("members", [2, 4, 8])
@pytest.mark.parametrize("hiccups", [0.0, 0.1, 1.0])
def test_one_draw_a_group_is_one_a_member(members: int, hiccups: float) -> None:
    """With hiccups of the size of the noise, who has one and who is slowest must fit together."""
    jitter = Jitter(speed_spread=0.0, noise=0.1, hiccups=hiccups, hiccup_length=0.2)
    ranks = RankGrid(pp=1, groups=50, members=members)
    at_once = late(jitter, ranks, one_by_one=False)
    each = late(jitter, ranks, one_by_one=True, seed=2)
    assert two_sample(at_once, each) < 1


def test_the_distance_tells_a_hiccup_that_is_left_out() -> None:
    jitter = Jitter(speed_spread=0.0, noise=0.1, hiccups=0.1, hiccup_length=0.2)
    ranks = RankGrid(pp=1, groups=50, members=8)
    at_once = late(jitter, ranks, one_by_one=False)
    each = late(jitter.without("hiccups"), ranks, one_by_one=True, seed=2)
    assert two_sample(at_once, each) > 3


def test_the_update_waits_for_the_slowest_of_all_groups() -> None:
    jitter = Jitter(speed_spread=0.0, noise=0.1, hiccups=0.0)
    ranks = RankGrid(pp=1, groups=16, members=4)
    collected = []
    for apart in (frozenset[int](), frozenset({0})):
        block = Block(graph_of_one(), ranks, jitter, np.zeros(8000, dtype=np.int64), seed=1,
                      number=0, one_by_one=apart)  # fmt: skip
        collected.append(np.array(block.late_update(0, [SECONDS], [np.arange(16)])[0]))
    assert collected[0].shape == (8000,)
    assert two_sample(*collected) < 1
    assert collected[0].mean() == pytest.approx(2 * np.expm1(0.1 * 2.38), rel=0.02)  # of 64 draws


def test_the_update_of_each_class_waits_for_its_own_groups() -> None:
    """At once or one by one: the largest of 4 x 4 and of 12 x 4 draws, each of its seconds."""
    jitter = Jitter(speed_spread=0.0, noise=0.1, hiccups=0.0)
    ranks = RankGrid(pp=1, groups=16, members=4)
    classes = [np.arange(4), np.arange(4, 16)]
    collected = []
    for apart in (frozenset[int](), frozenset({0})):
        block = Block(graph_of_one(), ranks, jitter, np.zeros(8000, dtype=np.int64), seed=1,
                      number=0, one_by_one=apart)  # fmt: skip
        collected.append(
            [np.array(entry) for entry in block.late_update(0, [SECONDS, 3.0], classes)]
        )
    for at_once, each, expected in zip(*collected, (2 * 1.77, 3 * 2.23), strict=True):
        assert two_sample(at_once, each) < 1
        assert at_once.mean() == pytest.approx(0.1 * expected, rel=0.15)
    assert abs(np.corrcoef(collected[0])[0, 1]) < 0.05


def test_hiccups_come_as_often_as_they_should() -> None:
    jitter = Jitter(speed_spread=0.0, noise=0.0, hiccups=0.02, hiccup_length=0.5)
    ranks = RankGrid(pp=2, groups=10, members=4)
    block = Block(GRAPH, ranks, jitter, np.zeros(1000, dtype=np.int64), seed=1, number=0,
                  one_by_one=frozenset())  # fmt: skip
    lateness = block.late(GRAPH.rank.tolist(), [SECONDS] * GRAPH.num_actions)
    result = np.array([np.array(added).sum() for added in lateness]) / 0.5
    expected = 0.02 * 2 * 10 * 4 * 1000
    assert abs(result.sum() - expected) < 5 * np.sqrt(expected)
    assert (abs(result - expected / 8) < 5 * np.sqrt(expected / 8)).all()  # spread over 8 actions


@pytest.mark.parametrize("apart", [frozenset[int](), frozenset({0, 1}), frozenset({1})])
def test_actions_drawn_at_once_are_those_drawn_one_by_one(
    apart: frozenset[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the last bit, and in far fewer draws: a shipped scenario has 131,072 actions."""
    jitter = Jitter(speed_spread=0.05, noise=0.1, hiccups=0.5, hiccup_length=0.1)
    ranks = RankGrid(pp=2, groups=3, members=5)
    owners = GRAPH.rank.tolist()
    seconds = [SECONDS + rank for rank in owners]
    result, draws = [], []
    for numbers in (1, 10**6):
        monkeypatch.setattr("parsim.sim.lateness.draws.DRAWN_AT_ONCE", numbers)
        block = Block(GRAPH, ranks, jitter, np.zeros(7, dtype=np.int64), seed=1, number=0,
                      one_by_one=apart)  # fmt: skip
        draws.append(len(list(block._runs(owners))))
        lateness = [np.array(added) for added in block.late(owners, seconds)]
        result.append(
            np.array([*lateness, np.array(block.late_update(1, [1.0], [np.arange(3)]) * 3)])
        )
    assert np.array_equal(result[0], result[1])
    assert draws[0] == GRAPH.num_actions > draws[1]


def test_a_source_switched_off_leaves_the_others_as_they_were() -> None:
    jitter = Jitter(speed_spread=0.05, noise=0.1, hiccups=0.5, hiccup_length=0.1)
    ranks = RankGrid(pp=1, groups=20, members=4)
    whole = late(jitter, ranks, one_by_one=True)
    for source in ("hiccups", "speed_spread", "noise"):
        without = late(jitter.without(source), ranks, one_by_one=True)
        alike = np.corrcoef(whole.ravel(), without.ravel())[0, 1]
        assert 0.1 < alike < 0.999
    assert (whole >= late(jitter.without("hiccups"), ranks, one_by_one=True)).all()


def test_speeds_have_their_spread_and_slow_ranks_their_factor() -> None:
    jitter = Jitter(speed_spread=0.02, slow_ranks=((7, 1.2),))
    ranks = RankGrid(pp=4, groups=64, members=16, slow=((1, 2, 3, 1.2),))
    result = speeds(ranks, jitter, 0, 0)
    plain = speeds(ranks, jitter.without("slow_ranks"), 0, 0)
    assert result.std() == pytest.approx(0.02, rel=0.05)
    assert np.argwhere(result != plain).tolist() == [[1, 3, 2]]
    assert (result - plain)[1, 3, 2] == pytest.approx(np.log(1.2))
    assert not np.array_equal(result, speeds(ranks, jitter, 0, 1))
    assert np.array_equal(result, speeds(ranks, jitter, 0, 0))


def test_only_ranks_that_differ_are_drawn_one_by_one() -> None:
    ranks = RankGrid(pp=4, groups=2, members=2, slow=((1, 0, 0, 1.2),))
    listed = Jitter(speed_spread=0.0, slow_ranks=((4, 1.2),))
    assert ranks.differ(listed) == {1}
    assert ranks.differ(listed.without("slow_ranks")) == frozenset()
    assert ranks.differ(Jitter()) == {0, 1, 2, 3}
