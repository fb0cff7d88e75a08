"""Rounds as events: laws of queues and of stale gradients, gates, quorums, speed."""

from __future__ import annotations

import numpy as np
import pytest

from parsim.errors import ScheduleError
from parsim.sim.program import PricedProgram, by_recurrence
from parsim.sim.rounds.rounds_end import RoundsEnd, staleness
from parsim.sim.rounds.run import run_rounds
from parsim.strategy.program import StepProgram
from parsim.strategy.task import Gate, Queue, Task
from tests.parsim.sim.rounds.servers import averaged, prices, server


def rate(end: RoundsEnd) -> float:
    """Updates a second between a tenth of the rounds and the first worker's end."""
    begin = float(end.finished[len(end.finished) // 10].max())
    stop = float(end.finished[-1].min())
    return float(((end.finished > begin) & (end.finished <= stop)).sum()) / (stop - begin)


def exact_rate(workers: int, think: float, service: float) -> float:
    """Mean value analysis of one server with exponential service."""
    queued = 0.0
    for customers in range(1, workers + 1):
        response = service * (1.0 + queued)
        through = customers / (think + response)
        queued = through * response
    return through


def test_mean_value_analysis_by_hand() -> None:
    rates = [exact_rate(n, 1.0, 0.25) for n in (1, 2, 3, 4)]
    assert rates == pytest.approx([4 / 5, 20 / 13, 156 / 71, 284 / 103])


@pytest.mark.parametrize(
    ("workers", "simulated"), [(4, 3.580), (16, 9.957)], ids=["free", "saturated"]
)
def test_one_server_with_deterministic_service_saturates(workers: int, simulated: float) -> None:
    """Between the exact rate of exponential service and the bound min(n / (Z + S), 1 / S)."""
    rounds = 30_000 // workers
    slow = np.random.default_rng(1).exponential(size=(rounds, workers))
    result = rate(run_rounds(server(workers, rounds), prices([1.0] * workers, 0.1), slow=slow))
    assert result == pytest.approx(simulated, rel=0.01)
    assert exact_rate(workers, 1.0, 0.1) * 0.99 < result < min(workers / 1.1, 10.0) * 1.001


@pytest.mark.parametrize("workers", [1, 4, 11, 12, 20])
def test_equal_workers_reach_the_bound(workers: int) -> None:
    """Nothing random: X = min(n / (Z + S), 1 / S), with the knee at n = 1 + Z / S."""
    end = run_rounds(server(workers, 200), prices([1.0] * workers, 0.1))
    assert rate(end) == pytest.approx(min(workers / 1.1, 10.0), rel=0.02)


def test_two_workers_of_one_and_two_seconds() -> None:
    """Ties go to the first worker: it copies before the other's update of that moment counts."""
    ages = staleness(run_rounds(server(2, 6), prices([1.0, 2.0])))
    assert ages.age[:9].tolist() == [0, 0, 2, 1, 0, 2, 1, 0, 2]


@pytest.mark.parametrize("speeds", [(1.0, 1.0, 1.0), (1.0, 2.0, 7.0)])
@pytest.mark.parametrize("service", [0.0, 0.4])
def test_the_mean_age_is_a_law(speeds: tuple[float, ...], service: float) -> None:
    """(sum over workers of (l_i + 1)) / T - 1, for any speeds and any queue: each update counted
    between two of every other worker."""
    slow = np.random.default_rng(3).exponential(size=(300, 3))
    ages = staleness(run_rounds(server(3, 300), prices(speeds, service), slow=slow))
    last = [int(np.flatnonzero(ages.worker == worker)[-1]) for worker in range(3)]
    assert ages.mean == pytest.approx((sum(last) + 3) / len(ages.age) - 1, abs=1e-12)


def test_ages_of_exponential_workers_are_geometric() -> None:
    """P(age = j) = (1 / n) (1 - 1 / n)^j."""
    workers, rounds = 4, 10_000
    slow = np.random.default_rng(5).exponential(size=(rounds, workers))
    ages = staleness(run_rounds(server(workers, rounds), prices([1.0] * workers), slow=slow))
    assert ages.share()[:4] == pytest.approx([0.25 * 0.75**j for j in range(4)], rel=0.04)
    assert float(np.var(ages.age)) == pytest.approx(workers * (workers - 1), rel=0.06)


@pytest.mark.parametrize(
    ("lag", "ends"),
    [
        (0, ([1, 3, 8, 9, 11, 13], [2, 4, 6, 10, 12, 14])),
        (1, ([1, 2, 6, 7, 8, 9], [2, 4, 6, 8, 10, 12])),
    ],
)
def test_a_bound_on_staleness(lag: int, ends: tuple[list[float], list[float]]) -> None:
    """fin_i(c) = max(fin_i(c-1), max_j fin_j(c-1-q)) + d, by hand, and by the recurrence."""
    slow = np.array([[1, 1, 4, 1, 1, 1], [2, 2, 2, 2, 2, 2]], dtype=np.float64).T
    ranks = (0, 1)
    program = StepProgram(
        tasks=(Task(name="F", kind="F", ranks=ranks, price="compute", on_device=True,
                    gate=Gate(lag=lag)),),
        ranks=2,
        rounds=6,
    )  # fmt: skip
    end = run_rounds(program, prices([1.0, 1.0]), slow=slow)
    assert end.finished.T.tolist() == [list(row) for row in ends]
    walked = by_recurrence(PricedProgram(program=program, seconds={"compute": np.ones(2)}), slow)
    assert walked.times["F @5"].end[:, 0].tolist() == [row[-1] for row in ends]


def test_bounded_workers_are_never_further_apart_than_the_bound() -> None:
    slow = np.random.default_rng(7).exponential(size=(200, 4))
    end = run_rounds(server(4, 200, Gate(lag=2)), prices([1.0] * 4), slow=slow)
    for moment in end.finished.ravel():
        done = (end.finished <= moment).sum(axis=0)
        assert done.max() - done.min() <= 3


def step_of_quorum(workers: int, quorum: int) -> float:
    """Mean step where the first of exponential workers count and the others go on until they come.

    A Markov chain: some have come to the open step, some are late with an earlier one.
    """
    states = [
        (come, late)
        for come in range(quorum)
        for late in range(workers - quorum + 1)
        if come + late <= workers
    ]
    number = {state: index for index, state in enumerate(states)}
    flow, closing = np.zeros((len(states), len(states))), np.zeros(len(states))
    for (come, late), index in number.items():
        fresh = workers - come - late
        after = (0, workers - quorum) if come + 1 == quorum else (come + 1, late)
        closing[index] = fresh if come + 1 == quorum else 0
        moves = [(after, fresh)] if fresh else []
        moves += [((come, late - 1), late)] if late else []
        for to, rate in moves:
            flow[index, number[to]] += rate
            flow[index, index] -= rate
    system = np.vstack([flow.T, np.ones(len(states))])
    shares = np.linalg.lstsq(system, np.eye(len(system))[-1], rcond=None)[0]
    return float(1.0 / (shares @ closing))


def test_the_chain_by_hand() -> None:
    """One of two is enough: both fresh a third of the time, so 2/3 + 2/3 = 4/3 steps a second."""
    assert step_of_quorum(2, 1) == pytest.approx(3 / 4)
    assert step_of_quorum(4, 4) == pytest.approx(25 / 12)


@pytest.mark.parametrize("backups", [0, 1, 2, 3])
def test_backup_workers_cut_the_tail(backups: int) -> None:
    """Exponential compute; a late worker is as good as new only when it has come."""
    workers, rounds = 4 + backups, 4_000
    slow = np.random.default_rng(9).exponential(size=(rounds, workers))
    program = averaged(workers, rounds, quorum=4 if backups else 0)
    end = run_rounds(program, prices([1.0] * workers), slow=slow)
    assert end.end / rounds == pytest.approx(step_of_quorum(workers, 4), rel=0.03)
    assert end.dropped + end.skipped == backups * rounds


def test_a_late_worker_ends_its_round() -> None:
    """Two of three are enough: the third comes after three steps, and goes on in the fourth."""
    slow = np.tile([1.0, 2.0, 7.0], (6, 1))
    end = run_rounds(averaged(3, 6, quorum=2), prices(1.0), slow=slow, keep=True)
    computed = {number: time for (task, rank, number), time in end.times.items()
                if (task, rank) == (0, 2)}  # fmt: skip
    assert computed == {0: (0.0, 7.0), 3: (7.0, 14.0)}
    assert end.finished[:, 0].tolist() == [2.0, 4.0, 6.0, 8.0, 10.0, 12.0]
    assert end.finished[:, 2].tolist() == [7.0, 7.0, 7.0, 14.0, 14.0, 14.0]


def test_what_depends_on_arrival_is_for_events_alone() -> None:
    program = server(3, 5)
    assert program.depends_on_arrival == "update"
    with pytest.raises(ScheduleError, match="who comes first"):
        by_recurrence(PricedProgram(program=program, seconds=prices([1.0] * 3)))


def test_peers_are_drawn_and_busy_with_one_another() -> None:
    """Two of n workers that average all the time are busy with each average."""
    ranks = tuple(range(4))
    queue = Queue(rows=tuple(f"worker {rank}" for rank in ranks), price="service", drawn=True)
    program = StepProgram(
        tasks=(Task(name="average", kind="AVERAGE", ranks=ranks, queues=(queue,)),),
        ranks=4,
        rounds=500,
    )
    end = run_rounds(program, prices(1.0, 1.0), seed=2)
    assert sum(end.busy.values()) == 4 * 500 * 2
    assert end.end > 500 * 2 / 2
    again = run_rounds(program, prices(1.0, 1.0), seed=2)
    assert again.finished.tolist() == end.finished.tolist()


def test_ranks_that_wait_for_ever_are_named() -> None:
    gate = Gate(of=((1,), (0,)))  # of each other: they go in step
    tasks = (Task(name="F", kind="F", ranks=(0, 1), price="compute", gate=gate),)
    program = StepProgram(tasks=tasks, ranks=3, rounds=3)
    assert run_rounds(program, prices([1.0, 2.0])).finished[-1].tolist() == [5.0, 6.0]
    with pytest.raises(ScheduleError, match="wait for one another at meet"):
        run_rounds(averaged(2, 3, quorum=3), prices([1.0, 1.0]))
