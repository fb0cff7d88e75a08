"""Strategies on three gloo ranks: each equals one process that does the same step by step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from executor.model.loss import Batch  # noqa: E402
from executor.strategies.compression import largest  # noqa: E402
from executor.strategies.gossip import drawn_peers  # noqa: E402
from executor.strategies.local_steps import Outer  # noqa: E402
from executor.strategies.replays.log import Applied  # noqa: E402
from executor.strategies.replays.replay import Replay, ReplayError, replay  # noqa: E402
from executor.strategies.replica import FlatOptimizer, FlatReplica  # noqa: E402
from executor.strategies.single_process import Copies  # noqa: E402
from executor.strategies.train import RUNNERS, check_strategy, train  # noqa: E402
from executor.strategies.work import Work  # noqa: E402
from executor.training.update_rule import OptimizerConfig, Rate  # noqa: E402
from parsim.errors import PlanError  # noqa: E402
from parsim.plan import Plan  # noqa: E402
from parsim.plan.strategies import (  # noqa: E402
    STRATEGY_KINDS,
    AllReduce,
    AsynchronousServer,
    DiLoCo,
    ParameterServer,
    SingleProcess,
    Strategy,
)
from parsim.sim.rounds.run import run_rounds  # noqa: E402
from tests.executor.launch import launch  # noqa: E402
from tests.executor.tiny import FAMILIES  # noqa: E402
from tests.executor.workers.specs import DEEPSEEK  # noqa: E402
from tests.executor.workers.strategies import DELAYS, ROUNDS  # noqa: E402
from tests.parsim.sim.rounds.servers import averaged, prices  # noqa: E402

WORKER = Path(__file__).parent.parent / "workers" / "strategies.py"
RANKS = 3


@pytest.fixture(scope="module")
def by_rank(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each rank found, of one launch for all cases."""
    folder = tmp_path_factory.mktemp("strategies")
    return launch(WORKER, ranks=RANKS, folder=folder, timeout=300.0)


@pytest.mark.distributed
@pytest.mark.parametrize("recipe", ["sgd", "clipped", "adamw"])
@pytest.mark.parametrize(
    "case", ["server None", "server 2", "every step", "every third", "diloco", "gossip", "one peer"]
)
def test_a_strategy_equals_its_steps_in_one_process(
    case: str, recipe: str, by_rank: list[dict[str, Any]]
) -> None:
    """Sums in another order: 1e-6 under SGD; AdamW divides by the root of small squares."""
    bound = 1e-3 if recipe == "adamw" else 1e-6
    assert max(rank[f"{case} {recipe}"] for rank in by_rank) <= bound


@pytest.mark.distributed
@pytest.mark.parametrize(
    "case",
    [
        "diloco without momentum",
        "parameter_server servers=2 compression=0.1",
        "parameter_server servers=1 compression=0.5 compressor=half",
        "uneven",
    ],
)
def test_compressed_and_uneven_gradients_equal_one_process(
    case: str, by_rank: list[dict[str, Any]]
) -> None:
    assert max(rank[case] for rank in by_rank) <= 1e-6


@pytest.mark.distributed
@pytest.mark.parametrize(
    "case", [*(f"asynchronous {bound}" for bound in (None, 0, 1)), "servers 3", "servers 2"]
)
def test_an_asynchronous_server_is_its_log(case: str, by_rank: list[dict[str, Any]]) -> None:
    """Bit for bit: every gradient of the version that its worker had, in order of arrival."""
    assert [rank[case] for rank in by_rank] == [0.0] * RANKS
    order = by_rank[0][f"order {case}"]
    servers = {server for _, _, _, server in order}
    assert sorted((s, worker, number) for worker, number, _, s in order) == [
        (server, worker, number)
        for server in sorted(servers)
        for worker in range(RANKS)
        for number in range(6)
    ]
    bound = {"asynchronous 0": 0, "asynchronous 1": 1, "servers 2": 1}.get(case)
    for server in servers:
        done = [0] * RANKS
        for worker, _, _, at in order:
            done[worker] += at == server
            if bound is not None:
                assert max(done) - min(done) <= bound + 1


@pytest.mark.distributed
def test_backup_workers_drop_who_is_late(by_rank: list[dict[str, Any]]) -> None:
    """Every step counts two of three; the worker that is late is missing from all."""
    assert max(rank["backup"] for rank in by_rank) <= 1e-6
    order = by_rank[0]["order backup"]
    counted = [[w for w, number, _, _ in order if number == step] for step in range(6)]
    assert [len(workers) for workers in counted] == [2] * 6
    assert counted == [[0, 1]] * 6


@pytest.mark.distributed
def test_late_backup_workers_compute_what_is_simulated(by_rank: list[dict[str, Any]]) -> None:
    """The late one ends its round, which is dropped, and goes on in the step that is open then."""
    program = averaged(RANKS, ROUNDS, quorum=RANKS - 1)
    slow = np.tile(DELAYS, (ROUNDS, 1))
    end = run_rounds(program, prices(1.0), slow=slow, keep=True)
    simulated = [[n for t, r, n in sorted(end.times) if (t, r) == (0, w)] for w in range(RANKS)]
    assert by_rank[0]["rounds backup"] == simulated == [[*range(6)], [*range(6)], [0, 3]]
    assert (end.dropped, end.skipped) == (2, 4)


@pytest.mark.distributed
def test_peers_are_their_logs(by_rank: list[dict[str, Any]]) -> None:
    """Bit for bit, in any order of events that fits all logs; averages stand in both logs."""
    assert [rank["peers"] for rank in by_rank] == [0.0] * RANKS
    averages = [
        {(event[2], event[3], event[4]) for event in rank["events peers"] if event[1] == "average"}
        for rank in by_rank
    ]
    for worker, mine in enumerate(averages):
        assert {average for average in mine if average[1] == worker} == {
            (number, worker, peer) for number, peer in enumerate(drawn_peers(worker, RANKS, 6))
        }
    assert all(
        sum(average in other for other in averages) == 2 for mine in averages for average in mine
    )
    assert len(by_rank[0]["ages peers"]) == RANKS * 6


@pytest.mark.distributed
def test_the_mean_age_is_the_law_of_the_order(by_rank: list[dict[str, Any]]) -> None:
    """(sum over workers of (l_i + 1)) / T - 1: whoever was late, and however late."""
    for bound in (None, 0, 1):
        ages, order = (
            by_rank[0][f"ages asynchronous {bound}"],
            by_rank[0][f"order asynchronous {bound}"],
        )
        last = {worker: position for position, (worker, _, _, _) in enumerate(order)}
        if bound is None:
            assert sum(ages) == sum(position + 1 for position in last.values()) - len(order)
        assert all(age >= 0 for age in ages)


@pytest.mark.parametrize("microbatches", [1, 2])
def test_copies_in_one_process_equal_one_model(microbatches: int) -> None:
    """Three threads, the last with fewer rows: the loss is taken of all outputs together."""
    spec, rounds = FAMILIES["gpt2"], 3
    config = OptimizerConfig(name="sgd", rate=Rate(peak=0.5), weight_decay=0.0, clip=0.1)
    draw = torch.Generator().manual_seed(5)
    ids = torch.randint(0, spec.vocab_size, (rounds, 3, 4, spec.seq_len + 1), generator=draw)

    def batches(worker: int, number: int) -> Batch:
        rows = ids[number, worker]
        return rows[:, :-1].contiguous(), rows[:, 1:].contiguous()

    model = FlatReplica(spec, seed=3, device=torch.device("cpu"))
    optimizer = FlatOptimizer(model.weights, config)
    for number in range(rounds):
        model.load(optimizer.weights)
        parts = [batches(worker, number) for worker in range(3)]
        whole = torch.cat([p[0] for p in parts]), torch.cat([p[1] for p in parts])
        optimizer.apply(model.gradient(whole)[1], number)
    plan = Plan(
        dp_replicate=3, strategy=SingleProcess(), precision="fp32", num_microbatches=microbatches
    )
    work = Work(
        plan=plan,
        replica=FlatReplica(spec, seed=3, device=torch.device("cpu")),
        batches=batches,
        config=config,
        rounds=rounds,
        clock=lambda: 0.0,
        keep=2,
    )
    done = train(work)
    error = float((done.weights - optimizer.weights).abs().max() / optimizer.weights.abs().max())
    assert error <= 1e-6
    assert list(done.copies) == [2]
    assert [ended.round for ended in done.rounds] == [0, 1, 2]


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
        (ParameterServer(backup_workers=1, servers=2), "backup_workers=1 with several servers"),
        (ParameterServer(backup_workers=1, on="devices"), "use servers=1"),
        (ParameterServer(node_sums=True), "node_sums=true is simulated only"),
        (ParameterServer(overlap=True), "overlap=true is simulated only"),
        (AllReduce(algorithm="ring"), "cannot be forced here"),
    ],
)
def test_what_cannot_be_run_is_refused(strategy: Strategy, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        check_strategy(Plan(dp_replicate=4, precision="fp32", strategy=strategy))


def test_sixteen_bit_is_refused() -> None:
    with pytest.raises(PlanError, match="fp32"):
        check_strategy(Plan(dp_replicate=4, strategy=ParameterServer()))
    assert set(RUNNERS) == set(STRATEGY_KINDS) - {"ddp"}


def test_the_largest_values_and_of_equal_ones_the_first() -> None:
    values = torch.tensor([1.0, -3.0, 2.0, 2.0, 0.0, -2.0])
    assert largest(values, 1).tolist() == [1]
    assert largest(values, 3).tolist() == [1, 2, 3]
    assert sorted(largest(values, 6).tolist()) == list(range(6))
    draw = torch.randn(1000, generator=torch.Generator().manual_seed(2))
    assert set(largest(draw, 37).tolist()) == set(torch.topk(draw.abs(), 37).indices.tolist())


@pytest.mark.parametrize("zeros", [0.0, 0.6, 0.95, 1.0])
@pytest.mark.parametrize("share", [0.0001, 0.05, 0.4, 0.9])
def test_the_largest_of_a_gradient_with_zeros(zeros: float, share: float) -> None:
    """A sampled bound finds them all, whether there are more values than zeros or fewer."""
    generator = torch.Generator().manual_seed(3)
    draw = torch.randn(200_000, generator=generator)
    draw[torch.rand(200_000, generator=generator) < zeros] = 0.0
    count = int(share * len(draw))
    chosen = largest(draw, count)
    assert len(set(chosen.tolist())) == count
    expected = torch.topk(draw.abs(), count).values
    assert torch.equal(draw[chosen].abs().sort(descending=True).values, expected)


def test_the_largest_of_a_gradient_that_is_not_finite() -> None:
    """So many are sent as were announced, so that the servers' update shows what happened."""
    values = torch.tensor([float("nan"), 1.0, float("inf"), 0.0, float("nan")])
    assert largest(values, 4).tolist() == [1, 2, 0, 3]


def test_a_gradient_forgets_the_last_one() -> None:
    """What arrives first takes its place, what comes later is added, what never comes is 0."""
    spec = FAMILIES["gpt2"]
    replica = FlatReplica(spec, seed=3, device=torch.device("cpu"))
    ids = torch.randint(0, spec.vocab_size, (4, spec.seq_len + 1))
    batch = ids[:, :-1].contiguous(), ids[:, 1:].contiguous()
    _, summed = replica.gradient(batch)
    summed.fill_(7.0)
    whole = replica.gradient(batch)[1].clone()
    parameters = list(replica.model.parameters())
    for parameter in parameters:
        parameter.grad = None
    replica.loss(replica.model(batch[0]), batch[1]).backward()
    alone = torch.cat([p.grad.flatten() for p in parameters if p.grad is not None])
    assert torch.equal(whole, alone)
    assert torch.allclose(replica.gradient(batch, 2)[1], whole, rtol=1e-4, atol=1e-7)
    parameters[0].requires_grad_(requires_grad=False)
    rest = replica.gradient(batch)[1]
    count = parameters[0].numel()
    assert not rest[:count].any()
    assert torch.equal(rest[count:], whole[count:])


def test_what_no_gradient_trains_stays_and_is_on_every_copy() -> None:
    """The bias by which DeepSeek's experts are chosen: no weight decay reaches it."""
    replica = FlatReplica(DEEPSEEK, seed=3, device=torch.device("cpu"))
    stored = dict(replica.model.named_parameters())
    names = [name for name, parameter in stored.items() if not parameter.requires_grad]
    assert names
    for name in names:
        stored[name].detach().fill_(0.5)
    ids = torch.randint(0, DEEPSEEK.vocab_size, (2, DEEPSEEK.seq_len + 1))
    _, gradient = replica.gradient((ids[:, :-1].contiguous(), ids[:, 1:].contiguous()))
    before = replica.weights
    FlatOptimizer(replica.flat, OptimizerConfig(name="sgd", rate=Rate(peak=0.5))).apply(gradient, 0)
    assert not torch.equal(replica.flat, before)
    assert set(replica.named(gradient)) == set(stored) - set(names)
    for copy in Copies.of(replica, 2).replicas:
        values = dict(copy.model.named_parameters())
        assert all(bool((values[name] == 0.5).all()) for name in names)


def test_a_log_that_cannot_be_is_refused() -> None:
    """An arrival that was made of weights which only later arrivals make."""
    replica = FlatReplica(FAMILIES["gpt2"], seed=3, device=torch.device("cpu"))
    plan = Plan(dp_replicate=1, strategy=AsynchronousServer(servers=1), precision="fp32")
    config = OptimizerConfig()
    run = Replay(plan, replica, lambda _worker, _number: (None, None), config, config)
    with pytest.raises(ReplayError, match="before the weights"):
        replay(run, [Applied(0, 0, 1), Applied(0, 1, 1)])
