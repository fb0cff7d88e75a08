"""Cuts that go down by the order of a schedule, against every cut of short chains."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations, pairwise

import numpy as np
import pytest

from parsim.cost.step.chain import Chain, Cut
from parsim.cost.step.cuts import Shares
from parsim.plan import Plan
from parsim.schedule import Kind
from parsim.schedule.placement import stage_ranks
from parsim.sim.cut_descent import FEW, ROUNDS, STAGES, Judge, Order, noticed, order_of, sent
from parsim.sim.recurrence.maxplus import ClassTimes, run
from parsim.sim.step.compiled_schedule import compiled_schedule

SPLITS = (Shares(1.0, 1.0, 1.0), Shares(0.6, 0.3, 2.1))
"""Forward, inputs' and weights' gradients of products, and of many experts, in thirds of both."""

PLAN = Plan(pp=4, num_microbatches=4, microbatch_size=1)


def seconds_of(
    schedule: str, pp: int, v: int, count: int, stages: np.ndarray, shares: Shares = SPLITS[0]
) -> float:
    """The end of a schedule whose forwards and halves of backwards take so much of the stages."""
    compiled = compiled_schedule(schedule, pp, count, v)
    copies, (forward, inner, weight) = compiled.schedule.in_copies(stages[:, None]), shares
    parts = {Kind.F: forward, Kind.B: inner + weight, Kind.I: inner, Kind.W: weight}
    seconds = {kind: part * copies for kind, part in parts.items()}
    hops = np.zeros((len(copies) - 1, 1))
    return float(run(compiled, ClassTimes.on(compiled.schedule, seconds, hops)).clock.max())


def every_cut(chain: Chain) -> Iterator[Cut]:
    count = len(chain.seconds)
    for inner in combinations(range(1, count), chain.num_stages - 1):
        yield tuple(end - first for first, end in pairwise((0, *inner, count)))


@pytest.mark.parametrize("head", [1.0, 4.0])
@pytest.mark.parametrize("rounds", [0.5, 1, FEW])
@pytest.mark.parametrize(
    ("schedule", "pp", "v"),
    [
        *(("1f1b", 4, 1), ("eager_1f1b", 4, 1), ("zb_h1", 4, 1), ("chimera", 4, 1)),
        *(("dualpipe", 4, 1), ("zb_v", 2, 2), ("interleaved_1f1b", 2, 2), ("hanayo", 2, 2)),
        *(("v_half", 2, 2), ("v_min", 2, 2)),
    ],
)
def test_the_way_down_ends_close_to_the_best_of_all_cuts(
    schedule: str, pp: int, v: int, rounds: float, head: float
) -> None:
    """From a cut whose stages are balanced, unless that is as good."""
    count = max(2, int(rounds * pp))
    plan = replace(PLAN, pp=pp, v=v, schedule=schedule, num_microbatches=count)
    chain = Chain.on(np.array([1.0] * 11 + [head]), stage_ranks(plan), plan.num_stages)

    def step(cut: Cut) -> float:
        return seconds_of(schedule, pp, v, count, chain.stages(cut))

    balanced, best = chain.alone_balanced, min(map(step, every_cut(chain)))
    order = order_of(plan)
    assert order is not None
    assert order == Order(schedule, pp, v, count, 0)
    lower = Judge(order, chain).descended([balanced])
    if lower is None:
        assert step(balanced) <= 1.03 * best
    else:
        assert best <= step(lower) <= min(1.03 * best, 0.99 * step(balanced))


@pytest.mark.parametrize(
    ("schedule", "cut", "thirds"),
    [("1f1b", (5, 4, 4, 3), (84, 82)), ("eager_1f1b", (5, 5, 3, 3), (84, 79))],
)
def test_first_stages_that_wait_for_gradients_have_more_of_alike_layers(
    schedule: str, cut: Cut, thirds: tuple[int, int]
) -> None:
    """Four micro-batches on four ranks: the last rank, which never waits, has fewer to do."""
    order = order_of(replace(PLAN, schedule=schedule))
    assert order is not None
    chain, even = Chain.on(np.ones(16), range(4), 4), (4, 4, 4, 4)
    assert Judge(order, chain).descended([even]) == cut
    assert tuple(seconds_of(schedule, 4, 1, 4, chain.stages(c)) for c in (even, cut)) == thirds


def test_the_shares_of_actions_decide_too() -> None:
    """Under ZB-V on two ranks; each cut is the shorter one with the shares that it is for."""
    plan = replace(PLAN, pp=2, v=2, schedule="zb_v", num_microbatches=2)
    order = order_of(plan)
    assert order is not None
    chain = Chain.on(np.ones(16), stage_ranks(plan), 4)
    thirds, experts = (Judge(order, chain, each).descended([(4, 4, 4, 4)]) for each in SPLITS)
    assert (thirds, experts) == ((3, 6, 2, 5), (4, 5, 3, 4))
    for better, worse, shares in ((thirds, experts, SPLITS[0]), (experts, thirds, SPLITS[1])):
        ends = [seconds_of("zb_v", 2, 2, 2, chain.stages(c), shares) for c in (better, worse) if c]
        assert ends[0] < ends[1]


@pytest.mark.parametrize("update", [0.0, 2.0])
def test_a_stage_that_updates_much_has_fewer_layers(update: float) -> None:
    """The last item has as many parameters as twelve others; a step ends with the last update."""
    plan = replace(PLAN, pp=2, num_microbatches=2)
    order = order_of(plan, update)
    assert order is not None
    sizes = np.array([1.0] * 12 + [12.0]) / 24
    chain = Chain.on(np.ones(13), range(2), 2)
    whole = update * chain.seconds.sum()

    def step(cut: Cut) -> float:
        first, last = np.add.reduceat(sizes, [0, cut[0]]) * whole
        compiled = compiled_schedule("1f1b", 2, 2, 1)
        stages = chain.stages(cut)[:, None] / 3
        seconds = {Kind.F: stages, Kind.B: 2 * stages, Kind.I: stages, Kind.W: stages}
        ends = run(compiled, ClassTimes.on(compiled.schedule, seconds, np.zeros((1, 1)))).clock
        return float(max(ends[0, 0] + first, ends[1, 0] + last))

    judge = Judge(order, chain, parameters=sizes)
    best = min(every_cut(chain), key=step)
    assert step(judge.descended([(1, 12)]) or (1, 12)) == pytest.approx(step(best))
    assert best == ((8, 5), (9, 4))[update > 0.0]


def test_updates_are_told_apart_where_they_are_a_share_of_the_step() -> None:
    counts = np.array([1, 4, 64])
    assert noticed(np.array([0.9, 0.9, 0.9]), counts).tolist() == [1.0, 1.0, 0.0]
    assert noticed(np.array([3.1, 0.4, 9.0]), counts).tolist() == [4.0, 0.0, 8.0]


def test_messages_are_told_apart_where_they_are_a_share_of_a_stage() -> None:
    counts = np.array([4, 4, 16])
    assert sent(np.array([0.01, 0.1, 0.01]), counts).tolist() == [0.0, 0.125, 0.0078125]


@pytest.mark.parametrize("blocks", [False, True])
def test_a_cut_for_slow_messages_is_faster_than_one_without(blocks: bool) -> None:
    plan = replace(PLAN, pp=3, num_microbatches=6, schedule="1f1b", overlap_p2p=not blocks)
    chain = Chain.on(np.ones(24), range(3), 3)
    order = order_of(plan, message=0.125)
    assert order is not None
    assert order.blocks == blocks

    def step(each: Cut) -> float:
        stages = chain.stages(each)[:, None] / 3
        compiled = compiled_schedule("1f1b", 3, 6, 1)
        seconds = {Kind.F: stages, Kind.B: 2 * stages, Kind.I: stages, Kind.W: stages}
        hops = np.full((2, 1), 0.125 * chain.seconds.sum())
        times = ClassTimes.on(compiled.schedule, seconds, hops)
        return float(run(compiled, times.blocking() if blocks else times).clock.max())

    begin = [(8, 8, 8), (9, 7, 8)]
    cut = Judge(order, chain).descended(begin) or min(begin, key=step)
    other = Judge(order._replace(message=0.0, blocks=False), chain).descended(begin) or (8, 8, 8)
    assert step(cut) <= step(other)
    assert (step(cut) < step(other)) == blocks


def test_an_order_of_many_stages_is_looked_at() -> None:
    """Stages of three chunks on eight ranks, the last of which has the head too."""
    plan = replace(PLAN, pp=8, v=3, num_microbatches=8, schedule="interleaved_1f1b")
    order = order_of(plan)
    assert order is not None
    chain = Chain.on(np.array([1.0] * 72 + [3.0]), [*range(8)] * 3, 24)
    begin = (3,) * 23 + (4,)
    lower = Judge(order, chain).descended([begin])
    assert lower is not None
    assert sum(lower) == 73
    assert lower[-1] < 4


def test_stages_of_one_layer_each_stay() -> None:
    order = order_of(replace(PLAN, schedule="eager_1f1b"))
    assert order is not None
    assert Judge(order, Chain.on(np.ones(4), range(4), 4)).descended([(1, 1, 1, 1)]) is None


def test_gpipes_cut_is_balanced() -> None:
    """Its step is the whole chain's and m - 1 times the slowest stage's: no cut is better."""
    chain = Chain.on(np.array([1.0] * 9 + [3.0]), range(3), 3)
    assert order_of(replace(PLAN, pp=3, schedule="gpipe")) is None
    best = min(seconds_of("gpipe", 3, 1, 4, chain.stages(cut)) for cut in every_cut(chain))
    assert seconds_of("gpipe", 3, 1, 4, chain.stages(chain.alone_balanced)) == best


def test_many_micro_batches_have_one_order() -> None:
    few, many = (replace(PLAN, schedule="1f1b", num_microbatches=count) for count in (9, 900))
    assert order_of(few) == order_of(many) == Order("1f1b", 4, 1, FEW * 4, ROUNDS)


def test_what_is_found_by_machine_is_cut_as_zb_h2() -> None:
    searched, named = (order_of(replace(PLAN, schedule=name)) for name in ("auto", "zb_h2"))
    assert searched == named is not None


@pytest.mark.parametrize(
    "plan",
    [
        replace(PLAN, schedule="pipedream"),
        replace(PLAN, num_microbatches=1),
        replace(PLAN, pp=STAGES + 1, num_microbatches=64),
        replace(PLAN, pp=2, v=STAGES + 1, schedule="interleaved_1f1b", num_microbatches=4),
    ],
)
def test_no_order_is_looked_at_where_there_is_none_or_it_is_long(plan: Plan) -> None:
    assert order_of(plan) is None
