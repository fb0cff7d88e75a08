"""Strategies of whole replicas: closed forms, both tiers on every task, bytes, bad plans."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from parsim.cost.jitter import Jitter
from parsim.errors import InputError, PlanError
from parsim.plan.strategies import (
    AllReduce,
    AsynchronousGossip,
    AsynchronousServer,
    DiLoCo,
    Gossip,
    LocalSGD,
    ParameterServer,
    SingleProcess,
    Strategy,
)
from parsim.sim import simulate
from parsim.sim.program import by_recurrence
from parsim.sim.recurrence.evaluate import evaluate
from parsim.sim.rounds.run import run_rounds
from parsim.strategy.gossip import exchanges, neighbours
from parsim.strategy.program import round_name
from tests.parsim.sim.data_parallel.cases import job, plan, predicted, priced, workers

STATIC: list[tuple[Strategy, int]] = [
    (SingleProcess(), 1),
    (ParameterServer(), 2),
    (ParameterServer(servers=1), 2),
    (ParameterServer(node_sums=True), 2),
    (ParameterServer(node_sums=True, overlap=True), 2),
    (ParameterServer(on="devices", servers=3, overlap=True), 2),
    (ParameterServer(on="devices", servers=3), 2),
    (Gossip(), 2),
    (Gossip(topology="exponential"), 2),
    (LocalSGD(every=3), 2),
    (LocalSGD(every=4, node_every=2, after=2), 2),
    (DiLoCo(every=3), 2),
]


@pytest.mark.parametrize(("strategy", "nodes"), STATIC, ids=lambda case: str(case))
@pytest.mark.parametrize("slow", [1.0, 1.5])
def test_recurrence_and_events_agree_on_every_task(
    strategy: Strategy, nodes: int, slow: float
) -> None:
    """Workers of one speed, and of a random one in every round."""
    made = priced(strategy, nodes, num_microbatches=2)
    program = made.program
    random = np.random.default_rng(4)
    factors = np.exp(np.log(slow) * random.standard_normal((program.rounds, program.ranks)))
    walked = by_recurrence(made.task_program, factors)
    run = run_rounds(program, made.task_program.prices, slow=factors, keep=True)
    assert len(run.times) == sum(len(program.tasks[t].ranks) > 0 for t, _, _ in run.times)
    for (number, rank, turn), (_, end) in run.times.items():
        task = program.tasks[number]
        times = walked.times[round_name(task.name, turn)].end
        wide = np.broadcast_to(times, (len(task.ranks), 1))
        assert end == pytest.approx(float(wide[task.ranks.index(rank), 0]), rel=1e-12)


@pytest.mark.parametrize(("strategy", "nodes"), STATIC, ids=lambda case: str(case))
def test_many_micro_batches_as_one_take_as_long(
    monkeypatch: pytest.MonkeyPatch, strategy: Strategy, nodes: int
) -> None:
    """A pass that stands for several has all that they send, and hides no more than the last."""
    each = predicted(strategy, nodes, num_microbatches=5)
    monkeypatch.setattr("parsim.sim.data_parallel.workers.MOST_PASSES", 1)
    as_one = predicted(strategy, nodes, num_microbatches=5)
    assert as_one.step_time == pytest.approx(each.step_time, rel=1e-9)
    assert each.strategy is not None
    assert as_one.strategy is not None
    assert as_one.strategy.sent == pytest.approx(each.strategy.sent)
    assert as_one.strategy.received == pytest.approx(each.strategy.received)
    made = priced(strategy, nodes, num_microbatches=5)
    run = run_rounds(made.program, made.task_program.prices)
    walked = float(by_recurrence(made.task_program).step_time[0])
    assert run.end / made.program.steps == pytest.approx(walked, rel=1e-12)


@pytest.mark.parametrize("servers", [1, 2])
def test_the_servers_traffic(servers: int) -> None:
    """Each of k servers receives n P / k and sends as much: 2 n P / k."""
    figures = predicted(ParameterServer(servers=servers), reduce_precision="same").strategy
    assert figures is not None
    size = 2.0 * job().model.parameters
    assert figures.server_received == pytest.approx(16 * size / servers)
    assert figures.server_received + figures.server_sent == pytest.approx(2 * 16 * size / servers)
    assert (figures.sent, figures.received) == pytest.approx((size, size))


def test_a_server_takes_what_its_narrowest_link_takes() -> None:
    """One server: eight workers of the other node push through its node's interfaces at once."""
    made = priced(ParameterServer(servers=1))
    end = by_recurrence(made.task_program)
    network = job().system.network
    assert network is not None
    size = workers(ParameterServer()).gradient_bytes
    compute = float((made.seconds["forward"] + made.seconds["backward"]).max())
    memory = 16 * float(made.seconds["push memory 0"][0])
    wire = 8 * size / (network.node_bandwidth * network.efficiency)
    pushed = float(end.times["push"].end.max()) - compute
    assert pushed == pytest.approx(max(memory, wire), rel=1e-6)


def test_nodes_that_sum_first_send_one_gradient_each() -> None:
    """Eight workers a node: an eighth of the traffic, behind a reduce-scatter in the node."""
    alone, summed = (
        predicted(ParameterServer(node_sums=sums), reduce_precision="same").strategy
        for sums in (False, True)
    )
    assert alone is not None
    assert summed is not None
    assert summed.server_received == pytest.approx(alone.server_received / 8)
    assert (summed.sent, summed.received) == pytest.approx((alone.sent / 8, alone.received / 8))
    made = priced(ParameterServer(node_sums=True))
    end = by_recurrence(made.task_program)
    inside = float(made.seconds["node_sum"][0])
    began = float(end.times["push"].start.min()) - float(end.times["B 0"].end.max())
    assert began == pytest.approx(inside)


def test_pushes_beside_backward_show_as_the_closed_form_says() -> None:
    """Pushes of Q seconds in K pieces beside a backward of B: max(Q - B + B / K, Q / K)."""
    made = priced(ParameterServer(servers=2, overlap=True), num_microbatches=2)
    end = by_recurrence(made.task_program)
    pieces = sum(task.name.startswith("push ") for task in made.program.tasks)
    last = end.times[f"backward {pieces - 1}"].end.max()
    backward = pieces * float(made.seconds["backward_piece"].max())
    pushed = end.times["push 0"]
    each = float((pushed.end - pushed.ready).max())
    exposed = float(end.times[f"push {pieces - 1}"].end.max() - last)
    whole = pieces * each
    assert exposed == pytest.approx(max(whole - backward + backward / pieces, each))


def test_pushes_beside_backward_carry_as_much() -> None:
    behind, beside = (predicted(ParameterServer(overlap=on)) for on in (False, True))
    assert behind.strategy is not None
    assert beside.strategy is not None
    assert beside.step_time < behind.step_time
    assert beside.strategy.sent == pytest.approx(behind.strategy.sent)
    assert beside.strategy.server_received == pytest.approx(behind.strategy.server_received)


def test_workers_keep_what_they_do_not_send() -> None:
    """The largest values alone: 4 bytes a parameter are fed back; 16 bit keeps nothing."""
    whole, half, largest = (
        predicted(strategy).memory["communication"]
        for strategy in (
            ParameterServer(),
            ParameterServer(compression=0.5, compressor="half"),
            ParameterServer(compression=0.5),
        )
    )
    assert half == whole
    assert largest - whole == 4.0 * job().model.parameters


def test_local_steps_pay_an_nth_of_an_all_reduce() -> None:
    """step = F + B + update + all_reduce / n, to the bit of their sum."""
    first, eight = (priced(LocalSGD(every=n)) for n in (2, 8))
    reduce = float(first.seconds["average"][0])
    times = [float(by_recurrence(p.task_program).step_time[0]) for p in (first, eight)]
    assert times[0] - times[1] == pytest.approx(reduce / 2 - reduce / 8, rel=1e-9)
    sent = [made.sent for made in (first, eight)]
    whole = 2.0 * 4.0 * job().model.parameters * 15 / 16
    assert sent == pytest.approx([whole / 2, whole / 8])


def test_averages_of_every_step_take_the_time_of_ddp_to_the_bit() -> None:
    ddp, local = predicted(), predicted(LocalSGD(every=1))
    assert local.step_time == ddp.step_time
    assert local.breakdown == ddp.breakdown
    assert local.strategy is not None
    assert (local.strategy.name, local.strategy.tier) == ("local_sgd", "recurrence")
    assert local.strategy.sent == pytest.approx(2.0 * 4.0 * job().model.parameters * 15 / 16)
    assert not local.strategy.trains_otherwise
    assert ddp.strategy is None


def test_a_worker_that_is_many_times_slower_leaves_a_rate() -> None:
    """Fifteen workers at their own pace, and one that ends a round while they end twenty."""
    slow = Jitter(speed_spread=0.0, noise=0.0, hiccups=0.0, slow_ranks=((1, 20.0),))
    strategy = AsynchronousGossip(updates=40)
    usual, held_back = (
        simulate(job(), plan(strategy), jitter=jitter)
        for jitter in (slow.without("slow_ranks"), slow)
    )
    assert 0.9 * usual.step_time < held_back.step_time < 1.3 * usual.step_time


def test_post_local_steps_lie_between_ddp_and_local_steps() -> None:
    local = predicted(LocalSGD(every=4))
    post = predicted(LocalSGD(every=4, after=20, steps=40))
    first = priced(LocalSGD(every=4, after=20, steps=40)).seconds["reduce"]
    more = 20 * float(first[0]) - (10 - 5) * float(priced(LocalSGD(every=4)).seconds["average"][0])
    assert post.step_time - local.step_time == pytest.approx(more / 40, rel=0.02)


def test_hierarchical_averages_add_those_inside_the_node() -> None:
    local, nodes = (predicted(LocalSGD(every=8, node_every=n)) for n in (None, 2))
    inside = float(priced(LocalSGD(every=8, node_every=2)).seconds["node_average"][0])
    assert nodes.step_time - local.step_time == pytest.approx(inside / 2, rel=0.02)
    size = 4.0 * job().model.parameters
    alone, both = (priced(LocalSGD(every=8, node_every=n)) for n in (None, 2))
    assert alone.sent == pytest.approx(2.0 * size * 15 / 16 / 8)
    assert both.sent == pytest.approx(alone.sent + 2.0 * size * 7 / 8 / 2)


def test_a_worker_of_the_exponential_graph_has_one_peer_a_step() -> None:
    """Assran et al. (arXiv 1811.10792): 16 workers, peers 1, 2, 4 and 8 away in turn, P bytes."""
    made = priced(Gossip(topology="exponential"))
    assert made.sent == made.received == workers(Gossip()).weight_bytes
    assert made.sent == priced(Gossip(topology="ring")).sent / 2
    for number in range(8):
        turns = [task for task in made.program.tasks if task.name.startswith("exchange")]
        (task,) = (turn for turn in turns if number in turn.when)
        assert task.gate is not None
        assert task.gate.of == tuple(((rank - 2 ** (number % 4)) % 16,) for rank in range(16))
    # neighbours of a node talk inside it, but for one; those 8 away all share its interfaces
    near, far = (made.seconds[f"exchange {hop}"] for hop in (1, 8))
    assert far.min() > near.max() > near.min()


@pytest.mark.parametrize(("count", "cycle"), [(2, 1), (4, 2), (8, 3), (16, 4)])
def test_one_peer_mixing_is_doubly_stochastic(count: int, cycle: int) -> None:
    """Rows and columns sum to 1 in each step; a cycle of 2^k workers gives all the exact mean."""
    assert len(exchanges(count, "exponential")) == cycle
    whole = np.eye(count)
    for number in range(cycle):
        mixing = np.eye(count)
        for rank in range(count):
            (peer,) = neighbours(rank, count, "exponential", number)
            mixing[rank, peer] += 1.0
        mixing /= 2.0
        assert (mixing.sum(axis=0) == 1.0).all()
        assert (mixing.sum(axis=1) == 1.0).all()
        whole = mixing @ whole
    assert (whole == 1.0 / count).all()


def test_gossip_hides_its_exchange_behind_compute() -> None:
    made = priced(Gossip())
    end = by_recurrence(made.task_program)
    exchange = float(made.seconds["exchange"].max())
    compute = float((made.seconds["forward"] + made.seconds["backward"]).max())
    update = float(made.seconds["optimizer"].max())
    assert float(end.step_time[0]) == pytest.approx(max(exchange, compute) + update, rel=1e-9)


@pytest.mark.parametrize("servers", [4, 8])
def test_a_server_on_a_device_updates_its_share_as_a_worker_would(servers: int) -> None:
    """A DDP update's seconds over the servers, with the pass that divides the sum beside it."""
    strategy = ParameterServer(servers=servers, on="devices")
    update = float(priced(strategy, nodes=1).seconds["server_optimizer"].max())
    alone = workers(strategy, nodes=1)
    fixed, divided = alone.job.software.optimizer_fixed, alone.passes_over(alone.parameters, 8.0)
    share = (float(alone.optimizer.max()) - fixed + float(divided.max())) / servers
    assert update == pytest.approx(share + fixed, rel=1e-3)


@pytest.mark.parametrize("servers", [1, 4, 8])
def test_servers_on_devices_hold_up_the_workers_there(servers: int) -> None:
    """Workers that have one compute longer, by less than twice; servers on hosts hold nobody."""
    strategy = AsynchronousServer(servers=servers, on="devices")
    alone = workers(strategy, nodes=1).forward
    slowed = priced(strategy, nodes=1).seconds["forward"] / alone
    ranks = np.arange(servers) * 8 // servers
    assert (slowed[ranks] > 1.0).all()
    assert (slowed < 2.0).all()
    assert (np.delete(slowed, ranks) == 1.0).all()
    beside = priced(AsynchronousServer(servers=servers), nodes=1).seconds["forward"]
    assert (beside == alone).all()


def test_averages_cost_the_passes_that_sum_and_divide_them() -> None:
    """Gossip adds and divides behind its compute, DiLoCo steps beside its average."""
    update = float(priced(LocalSGD(every=2)).seconds["optimizer"].max())
    values, ring = workers(Gossip(topology="ring")), priced(Gossip(topology="ring"))
    mixed = float(values.passes_over(values.parameters, 2 * 12.0 + 8.0).max())
    assert float(ring.seconds["optimizer"].max()) == pytest.approx(update + mixed)
    outer = float(priced(DiLoCo(every=2)).seconds["outer"].max())
    assert outer == pytest.approx(float(values.passes_over(values.parameters, 40.0).max()))


def test_data_parallel_is_slower_than_ddp_and_fills_device_0() -> None:
    ddp, single = predicted(nodes=1), predicted(SingleProcess(), nodes=1)
    assert single.step_time > ddp.step_time
    first, others = single.peak_allocated
    states = others - first
    assert states < 0
    assert single.memory_by_rank[1]["optimizer"] == 0.0
    assert single.strategy is not None
    assert single.strategy.roles == ("device 0", "other devices")


def test_workers_of_a_server_hold_no_optimizer() -> None:
    ddp, served = predicted(), predicted(ParameterServer(servers=2))
    states = ddp.memory["optimizer"]
    assert max(ddp.peak_allocated) - max(served.peak_allocated) == pytest.approx(states)
    assert served.strategy is not None
    server_bytes = served.strategy.server_bytes
    assert server_bytes == pytest.approx(job().model.parameters / 2 * (2 + 4 + 8 + 4))


def test_diloco_holds_weights_and_momentum_of_its_outer_optimizer() -> None:
    more = max(predicted(DiLoCo(every=50)).peak_allocated) - max(predicted().peak_allocated)
    assert more == pytest.approx(8 * job().model.parameters)


@pytest.mark.parametrize(
    ("strategy", "part"),
    [
        (ParameterServer(servers=1), "synchronisation"),
        (LocalSGD(every=1), "optimizer"),
        (SingleProcess(), "synchronisation"),
    ],
    ids=["server", "every step", "one process"],
)
def test_the_share_that_limits_is_the_one_that_is_listed(strategy: Strategy, part: str) -> None:
    nodes = 1 if isinstance(strategy, SingleProcess) else 2
    prediction = predicted(strategy, nodes=nodes)
    assert prediction.strategy is not None
    listed = prediction.breakdown[part] / prediction.step_time
    assert f", {100 * listed:.0f} % of the step" in prediction.strategy.limits


def test_an_asynchronous_server_saturates() -> None:
    """Updates a second never exceed one over the service of the busiest queue."""
    figures = predicted(AsynchronousServer(servers=1)).strategy
    assert figures is not None
    made = priced(AsynchronousServer(servers=1))
    service = float(made.seconds["apply 0"][0])
    assert figures.tier == "events"
    assert figures.updates_per_second == pytest.approx(1.0 / service, rel=0.01)
    assert "saturated" in figures.limits
    assert figures.staleness is not None
    assert figures.staleness.mean == pytest.approx(15.0, abs=0.2)
    assert max(figures.busy.values()) == pytest.approx(1.0, abs=0.05)


def test_slow_workers_hold_back_a_barrier_but_not_a_server() -> None:
    """One worker of eight takes three times as long."""
    slow = Jitter(speed_spread=0.0, noise=0.0, hiccups=0.0, slow_ranks=((0, 3.0),))
    for strategy, least, most in (
        (AsynchronousServer(on="devices"), 0.85, 1.0),
        (AsynchronousServer(on="devices", staleness=0), 0.3, 0.6),
    ):
        rates = []
        for jitter in (slow, slow.without("slow_ranks")):
            chosen = plan(strategy, 8, microbatch_size=16)
            figures = simulate(job(1), chosen, jitter=jitter).strategy
            assert figures is not None
            rates.append(figures.samples_per_second)
        assert least < rates[0] / rates[1] <= most


def test_pairs_go_at_their_own_pace() -> None:
    figures = predicted(AsynchronousGossip()).strategy
    assert figures is not None
    assert figures.tier == "events"
    assert figures.staleness is not None


def test_backup_workers_are_dropped() -> None:
    figures = predicted(ParameterServer(backup_workers=2)).strategy
    assert figures is not None
    assert figures.dropped == pytest.approx(2 / 16)


@pytest.mark.parametrize("algorithm", ["ring", "tree", "hierarchical"])
def test_an_algorithm_can_be_forced(algorithm: str) -> None:
    forced = predicted(AllReduce(algorithm=algorithm))  # type: ignore[arg-type]
    assert forced.step_time == pytest.approx(predicted().step_time, rel=0.1)
    ring = evaluate(job(), plan(AllReduce(algorithm="ring")))
    costs = ring.step.costs
    network = job().system.network
    assert network is not None
    size = 4.0 * job().model.parameters
    least = 2 * size * 15 / 16 / min(network.node_bandwidth, 150e9)
    assert float((costs.buckets * costs.bucket_time)[0, 0]) > least


@pytest.mark.parametrize(("strategy", "nodes"), STATIC, ids=lambda case: str(case))
def test_both_tiers_are_asked_where_events_are(strategy: Strategy, nodes: int) -> None:
    chosen = plan(strategy, 8 * nodes)
    asked = simulate(job(nodes), chosen, tier="events")
    assert asked.step_time == predicted(strategy, nodes).step_time


def test_the_same_input_gives_the_same_answer() -> None:
    first, second = (predicted(AsynchronousServer()).to_json() for _ in range(2))
    assert first == second
    assert first["strategy"]["tier"] == "events"


@pytest.mark.parametrize(
    ("strategy", "values", "message"),
    [
        (ParameterServer(servers=3), {}, "servers=3 on hosts, but there are 2"),
        (ParameterServer(servers=0), {}, "servers=0 must be at least 1"),
        (ParameterServer(backup_workers=16), {}, "allowed: 0 to 15"),
        (ParameterServer(node_sums=True, on="devices"), {}, "servers on hosts"),
        (ParameterServer(node_sums=True, compression=0.1), {}, "packs each worker's"),
        (ParameterServer(node_sums=True, backup_workers=1), {}, "cannot be dropped"),
        (ParameterServer(overlap=True, compression=0.1), {}, "need the whole one"),
        (ParameterServer(compression=0.0), {}, "compression=0.0"),
        (ParameterServer(compression=0.2, compressor="half"), {}, "compressor=half sends half"),
        (ParameterServer(compressor="top_k"), {}, "compressor=top_k needs a share"),
        (LocalSGD(every=0), {}, "every=0 must be at least 1"),
        (LocalSGD(every=8, node_every=3), {}, "node_every=3 does not divide every=8"),
        (LocalSGD(every=8, after=10, steps=12), {}, "steps=12 end before"),
        (SingleProcess(), {}, "one process"),
        (LocalSGD(), {"zero_stage": 1, "dp_shard": 16, "dp_replicate": 1}, "zero_stage=1"),
        (LocalSGD(), {"tp": 2, "dp_replicate": 8}, "tp=2"),
        (LocalSGD(), {"replica_microbatches": (1,) * 15 + (2,), "num_microbatches": 2}, "uneven"),
    ],
)
def test_a_strategy_that_cannot_be_is_refused(
    strategy: Strategy, values: dict[str, object], message: str
) -> None:
    with pytest.raises(PlanError, match=message):
        simulate(job(), replace(plan(strategy), **values))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "strategy",
    [ParameterServer(), AsynchronousServer(), AsynchronousGossip(), Gossip(), LocalSGD(every=8),
     DiLoCo(), SingleProcess()],
    ids=str,
)  # fmt: skip
def test_workers_of_their_own_share_no_statistics(strategy: Strategy) -> None:
    """The executor refuses it too: nobody waits for the others within a pass."""
    nodes = 1 if isinstance(strategy, SingleProcess) else 2
    shared = plan(strategy, 8 * nodes, sync_batch_norm=True)
    with pytest.raises(PlanError, match="use sync_batch_norm=false, or name=ddp"):
        simulate(job(nodes), shared)


def test_a_server_without_hosts_is_refused() -> None:
    with pytest.raises(PlanError, match="says nothing of its own"):
        simulate(job(1, "a100-pcie-node"), plan(ParameterServer(), 8))


@pytest.mark.parametrize("strategy", [ParameterServer(), DiLoCo(every=1)], ids=str)
def test_shared_links_do_not_take_a_strategy_for_ddp(strategy: Strategy) -> None:
    """An outer step behind every step is no average of gradients."""
    with pytest.raises(InputError, match=f"name={strategy.name} "):
        evaluate(job(), plan(strategy))


def test_events_that_alone_know_are_compared_with_nothing() -> None:
    loose = replace(plan(), strategy=AsynchronousServer(servers=1))
    prediction = simulate(job(), loose, tier="events")
    assert prediction.checked.startswith("discrete events alone answer this strategy")
    both = simulate(job(), replace(loose, strategy=ParameterServer(servers=2)), tier="events")
    assert both.checked.startswith("discrete events and the recurrence agree on the step time")
