"""Steps of workers that differ, under every strategy: by hand, by law, what asynchrony gains."""

from __future__ import annotations

import numpy as np
import pytest

from parsim.cost.jitter import Jitter
from parsim.errors import InputError
from parsim.plan.strategies import (
    DDP,
    AsynchronousGossip,
    AsynchronousServer,
    DiLoCo,
    Gossip,
    LocalSGD,
    ParameterServer,
    SingleProcess,
    Strategy,
)
from parsim.sim.data_parallel.late import QUIET, jitter_of
from parsim.sim.data_parallel.pace import pace, speeds
from parsim.sim.lateness.monte_carlo import JitterResult, simulate_jitter
from tests.parsim.sim.data_parallel.cases import job, plan, priced, priced_strategy, workers

NOISE = Jitter(speed_spread=0.0, noise=0.2, hiccups=0.0, clusters=1)
SLOW = Jitter(speed_spread=0.0, noise=0.0, hiccups=0.0, slow_ranks=((1, 3.0),))
ALL: list[tuple[Strategy, int]] = [
    (SingleProcess(), 1),
    (ParameterServer(servers=2), 2),
    (ParameterServer(servers=1, backup_workers=2), 2),
    (AsynchronousServer(servers=2), 2),
    (AsynchronousServer(servers=2, staleness=1), 2),
    (Gossip(), 2),
    (AsynchronousGossip(), 2),
    (LocalSGD(every=3), 2),
    (DiLoCo(every=3), 2),
]


def study(strategy: Strategy, jitter: Jitter, nodes: int = 2, steps: int = 60) -> JitterResult:
    return jitter_of(job(nodes), plan(strategy, 8 * nodes), jitter, steps=steps, seed=4)


@pytest.mark.parametrize(("strategy", "nodes"), ALL, ids=str)
def test_workers_that_do_not_differ_take_the_predicted_step(strategy: Strategy, nodes: int) -> None:
    """Without the straggler allowance, which stands for the same waiting."""
    alone = pace(priced_strategy(strategy, nodes), QUIET).step_time
    result = study(strategy, QUIET, nodes)
    drawn = isinstance(strategy, AsynchronousGossip)  # peers are drawn anew
    assert result.mean == pytest.approx(alone, rel=0.1 if drawn else 0.01)
    assert result.base == pytest.approx(result.mean)
    assert result.losses == result.alone == {}


def test_local_steps_wait_for_the_slowest_sum() -> None:
    """Two steps between averages: the largest of the workers' two computes, and the average."""
    strategy = LocalSGD(every=2)
    made, each = priced(strategy), workers(strategy)
    result = study(strategy, NOISE, steps=40)
    factors = speeds(NOISE, 40, each.compute, [4, 0])
    busy = factors * (each.compute + each.optimizer)
    pairs = busy.reshape(20, 2, 16).sum(axis=1).max(axis=1) + float(made.seconds["average"][0])
    assert np.array(result.times).reshape(20, 2).sum(axis=1) == pytest.approx(pairs)


def test_a_barrier_waits_for_the_slowest_and_a_server_does_not() -> None:
    """One worker of sixteen at a third of the speed: 16 / (15 + 1/3) against 3."""
    synchronous = study(LocalSGD(every=2), SLOW)
    compute = float(workers(LocalSGD()).compute.mean())
    gained = synchronous.mean - synchronous.base
    assert gained == pytest.approx(2.0 * (compute + float(workers(DDP).optimizer[0])), rel=0.05)
    peers = study(AsynchronousGossip(), SLOW, steps=100)
    assert peers.mean / peers.base < 1.15
    assert synchronous.slow_ranks == ("worker 1: 3x",)


def test_sources_are_told_apart() -> None:
    """A slow worker loses what it adds alone, where nothing else differs."""
    result = study(LocalSGD(every=2), SLOW)
    assert result.losses["slow_ranks"] == pytest.approx(result.alone["slow_ranks"])
    assert study(LocalSGD(every=2), NOISE).mean > result.base


def test_the_same_seed_gives_the_same_steps() -> None:
    first, second = (study(AsynchronousServer(), NOISE, nodes=1, steps=20) for _ in range(2))
    assert first == second


def test_all_reduced_gradients_are_answered_as_before() -> None:
    chosen = plan()
    expected = simulate_jitter(job(), chosen, NOISE, steps=20)
    assert jitter_of(job(), chosen, NOISE, steps=20) == expected


def test_bad_requests_are_refused() -> None:
    with pytest.raises(InputError, match="slow_ranks=99"):
        study(ParameterServer(), Jitter(slow_ranks=((99, 2.0),)))
    with pytest.raises(InputError, match="jitter steps=0"):
        study(ParameterServer(), NOISE, steps=0)
