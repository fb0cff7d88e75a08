"""Strategies on three gloo ranks: each equals one process that does the same step by step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from executor.strategies.local_steps import Outer  # noqa: E402
from executor.strategies.train import RUNNERS, check_strategy  # noqa: E402
from parsim.errors import PlanError  # noqa: E402
from parsim.plan import Plan  # noqa: E402
from parsim.plan.strategies import (  # noqa: E402
    AsynchronousGossip,
    AsynchronousServer,
    DiLoCo,
    ParameterServer,
    SingleProcess,
    Strategy,
)
from tests.executor.launch import launch  # noqa: E402

WORKER = Path(__file__).parent.parent / "workers" / "strategies.py"
RANKS = 3


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each rank found, of one launch for all cases."""
    folder = tmp_path_factory.mktemp("strategies")
    return launch(WORKER, ranks=RANKS, folder=folder, timeout=300.0)


@pytest.mark.distributed
@pytest.mark.parametrize("recipe", ["sgd", "adamw"])
@pytest.mark.parametrize(
    "case", ["server None", "server 1", "server 2", "every step", "every third", "diloco", "gossip"]
)
def test_a_strategy_equals_its_steps_in_one_process(
    case: str, recipe: str, found: list[dict[str, Any]]
) -> None:
    """Sums in another order: 1e-6 under SGD; AdamW divides by the root of small squares."""
    bound = 1e-6 if recipe == "sgd" else 1e-3
    assert max(rank[f"{case} {recipe}"] for rank in found) <= bound


@pytest.mark.distributed
def test_diloco_with_a_plain_outer_step_is_local_sgd(found: list[dict[str, Any]]) -> None:
    assert max(rank["diloco without momentum"] for rank in found) <= 1e-6


@pytest.mark.distributed
@pytest.mark.parametrize("bound", [None, 0, 1])
def test_an_asynchronous_server_is_its_log(bound: int | None, found: list[dict[str, Any]]) -> None:
    """Bit for bit: every gradient of the version that its worker had, in order of arrival."""
    assert [rank[f"asynchronous {bound}"] for rank in found] == [0.0] * RANKS
    order = found[0][f"order {bound}"]
    assert sorted((worker, number) for worker, number, _ in order) == [
        (worker, number) for worker in range(RANKS) for number in range(6)
    ]
    done = [0] * RANKS
    for worker, _, _ in order:
        done[worker] += 1
        if bound is not None:
            assert max(done) - min(done) <= bound + 1


@pytest.mark.distributed
def test_the_mean_age_is_the_law_of_the_order(found: list[dict[str, Any]]) -> None:
    """(sum over workers of (l_i + 1)) / T - 1: whoever was late, and however late."""
    for bound in (None, 0, 1):
        ages, order = found[0][f"ages {bound}"], found[0][f"order {bound}"]
        last = {worker: place for place, (worker, _, _) in enumerate(order)}
        if bound is None:
            assert sum(ages) == sum(place + 1 for place in last.values()) - len(order)
        assert all(age >= 0 for age in ages)


def test_the_outer_optimizer_by_hand() -> None:
    """Targets 1 and 3, f = (w - a)^2 / 2, inner rate 1/2, H = 2: 9/8, then 231/128."""
    outer = Outer(torch.zeros(1), DiLoCo(every=2, outer_lr=0.5, outer_momentum=0.5))
    weight, after = torch.zeros(1), []
    for _ in range(2):
        workers = [weight.clone(), weight.clone()]
        for _ in range(2):
            workers = [w - 0.5 * (w - a) for w, a in zip(workers, (1.0, 3.0), strict=True)]
        weight = outer.step(torch.stack(workers).mean(0))
        after.append(float(weight))
    assert after == [9 / 8, 231 / 128]


@pytest.mark.parametrize(
    ("strategy", "message"),
    [
        (SingleProcess(), "data_parallel can be simulated but not run"),
        (AsynchronousGossip(), "asynchronous_gossip can be simulated"),
        (ParameterServer(backup_workers=1), "backup_workers=1"),
        (ParameterServer(compression=0.5), "compression=0.5"),
        (AsynchronousServer(servers=2), "servers=2"),
    ],
)
def test_what_cannot_be_run_is_refused(strategy: Strategy, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        check_strategy(Plan(dp_replicate=4, precision="fp32", strategy=strategy))


def test_sixteen_bit_is_refused() -> None:
    with pytest.raises(PlanError, match="fp32"):
        check_strategy(Plan(dp_replicate=4, strategy=ParameterServer()))
    assert set(RUNNERS) >= {"local_sgd", "gossip"}
