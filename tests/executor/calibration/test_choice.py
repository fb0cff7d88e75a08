"""The choice: what removes most uncertainty a second, within the time, the same every time."""

from __future__ import annotations

import datetime
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from executor.calibration.cases.kinds import BACKWARD, FORWARD, GEMM, LINKS

pytest.importorskip("torch")

from executor.calibration.calibrate import choice_for, links_for
from executor.calibration.cases.rank_groups import RankGroups
from executor.calibration.cases.samples import Sample
from executor.calibration.cases.setting import setting_for
from executor.calibration.cases.targets import of_scenario
from executor.calibration.cases.workloads import TimedCase
from executor.calibration.choice.belief import NOISE, Shape, after, covariance, prior
from executor.calibration.choice.candidates import rounded, shape_of
from executor.calibration.choice.choose import Choice, choose
from executor.calibration.choice.link_needs import link_needs
from executor.calibration.choice.spread import ShapeCandidate, as_written, shapes_known
from executor.calibration.fitting.earlier_file import Calibration
from executor.calibration.learning import Record, read, replay
from executor.calibration.outcome import announced, kernel_gaps, link_gaps
from executor.calibration.timing.links import SIZES, link_cases, link_choice
from executor.devices.machine import DeviceReport
from parsim.cluster.reader import load_catalog
from parsim.cost.step.plan_kernels import plan_kernels
from parsim.scenario import load_scenario

CPU = DeviceReport(kind="cpu", backend="gloo", count=2, names=("cpu",), shareable=True)
H200 = replace(CPU, kind="cuda", backend="nccl", count=1, names=("NVIDIA H200",), shareable=False)
REPORTS = {"cpu": CPU, "cuda": H200}
SCENARIOS = Path("scenarios")
DATA = Path(__file__).parents[1] / "data"


def candidate(m: float, cost: float = 1.0) -> ShapeCandidate:
    case = TimedCase(GEMM, {"m": m, "n": 64.0, "k": 64.0})
    return ShapeCandidate(shape=(GEMM, (m, 64.0, 64.0)), case=case, cost=cost)


def first(candidates: list[ShapeCandidate], weights: list[float], seconds: float) -> int:
    return choose(candidates, np.array([weights]), seconds, cpu=False).measured[0]


def test_the_heaviest_shape_comes_first() -> None:
    apart = [candidate(1.0), candidate(2.0**20), candidate(2.0**40)]
    assert first(apart, [0.2, 0.5, 0.3], 1.0) == 1


def test_a_cheaper_shape_of_equal_weight_comes_first() -> None:
    apart = [candidate(1.0, 2.0), candidate(2.0**20, 1.0)]
    assert first(apart, [0.5, 0.5], 2.0) == 1


def test_a_shape_that_tells_of_its_neighbours_comes_first() -> None:
    near = [candidate(2.0**30), *(candidate(2.0**i) for i in range(3))]
    assert first(near, [0.28, 0.24, 0.24, 0.24], 1.0) == 2


def test_what_cannot_be_run_is_left_out() -> None:
    candidates = [replace(candidate(1.0), case=None), candidate(4.0)]
    result = choose(candidates, np.array([[0.9, 0.1]]), 10.0, cpu=False)
    assert result.measured == (1,)
    assert result.counts() == {GEMM: {"of": 2, "measured": 1}}


@given(st.lists(st.floats(1.0, 1e6), min_size=2, max_size=8, unique=True), st.data())
def test_measuring_never_makes_less_sure(sizes: list[float], data: st.DataObject) -> None:
    shapes = [(GEMM, (size, 64.0, 64.0)) for size in sizes]
    belief = covariance(shapes, {GEMM: prior(GEMM)})
    rows = data.draw(st.lists(st.integers(0, len(sizes) - 1), unique=True, min_size=1))
    one_by_one = belief
    for row in rows:
        sharper = after(one_by_one, [row])
        assert (np.diag(sharper) <= np.diag(one_by_one) + 1e-15).all()
        one_by_one = sharper
    assert one_by_one == pytest.approx(after(belief, rows), abs=1e-12)
    assert (np.diag(one_by_one)[rows] <= NOISE**2).all()


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
@pytest.mark.parametrize("scenario", [None, SCENARIOS / "gpt2-small-cpu.yaml"])
def test_a_calibration_of_a_minute(kind: str, scenario: Path | None) -> None:
    result = choice_for(setting_for(REPORTS[kind], [scenario] if scenario else []), 55.0)
    counts = result.counts()
    assert counts["gemm"]["measured"] >= 20
    for direction in ("forward", "backward"):
        assert counts[f"attention_{direction}"]["measured"] >= 3
        assert counts[f"norm_{direction}"]["measured"] >= 2
    assert counts["launch"]["measured"] == 1
    assert result.cost <= 0.4 * 55.0
    assert result.expected < 0.2 * result.before
    assert f"of {len(result.candidates)} kernel shapes" in announced(result)


def test_more_time_is_never_less_sure() -> None:
    made = setting_for(CPU)
    expected = [choice_for(made, seconds).expected for seconds in (2.0, 5.0, 10.0, 20.0, 55.0)]
    assert expected == sorted(expected, reverse=True)


def test_the_same_every_time() -> None:
    setting = setting_for(CPU, [SCENARIOS / "gpt2-small-cpu.yaml"])
    made = [choice_for(setting, 10.0) for _ in range(2)]
    assert made[0].measured == made[1].measured
    assert announced(made[0]) == announced(made[1])


def test_exact_shapes_of_the_plan_carry_the_choice() -> None:
    result = choice_for(setting_for(CPU, [SCENARIOS / "gpt2-small-cpu.yaml"]), 55.0)
    products = np.array([candidate.shape[0] == GEMM for candidate in result.candidates])
    measured = np.isin(np.arange(len(products)), result.measured)
    share = result.weights[0, products & measured].sum() / result.weights[0, products].sum()
    assert share > 0.9


def test_a_space_has_every_tensor_degree_and_micro_batch(tmp_path: Path) -> None:
    text = (SCENARIOS / "gpt2-small-cpu.yaml").read_text().split("plan:")[0]
    even = text.replace("seq_len: 128", "seq_len: 128\n  padded_vocab_size: 50258")
    (tmp_path / "space.yaml").write_text(f"{even}search: {{}}\n")
    plans = [target.plan for target in setting_for(CPU, [tmp_path / "space.yaml"]).targets]
    assert {plan.tp for plan in plans} == {1, 2}
    assert {plan.microbatch_size for plan in plans} == {1, 2, 4}
    keys = {(x.tp, x.cp, x.microbatch_size, x.sequence_parallel) for x in plans}
    assert len(plans) == len(keys)


def test_the_blocks_of_a_ring_are_timed_in_their_own_shape() -> None:
    scenario = load_scenario(SCENARIOS / "gpt2-small-cp-cpu.yaml")
    (target,) = of_scenario(scenario, scenario.job.system.device)
    cases = {shape_of(case) for case in target.cases()}
    step = {
        (kernel.kind, rounded(kernel.where))
        for kernel in plan_kernels(target.job, target.plan)
        if kernel.kind in (FORWARD, BACKWARD, GEMM)
    }
    assert step <= cases
    assert {kind for kind, _ in step} == {FORWARD, BACKWARD, GEMM}


def test_collectives_within_memory_and_time() -> None:
    system = load_catalog().system("cpu")
    pairs = RankGroups(sizes=(2,), devices=2)
    few = link_choice(system, pairs, memory=1e9, seconds=1.0, cpu=True)
    many = link_choice(system, pairs, memory=1e12, seconds=1e4, cpu=True)
    small = link_choice(system, pairs, memory=1e6, seconds=1e4, cpu=True)
    assert sorted({case.shape["bytes"] for case in many.cases}) == list(map(float, SIZES))
    assert max(case.shape["bytes"] for case in small.cases) == 64 << 10
    assert few.cost <= 1.0
    assert len(few.cases) < len(many.cases) == 4 * len(SIZES)
    default = links_for(setting_for(CPU), 55.0).counts()
    assert min(entry["measured"] for entry in default.values()) >= 4


def test_a_restless_machine_is_less_sure() -> None:
    result = choice_for(setting_for(CPU), 20.0)
    done = [result.candidates[i].shape for i in result.measured]
    scatter = {kind: (0.05, 5) for kind, _ in done}
    quiet, restless = (result.achieved(scatter, done, drift) for drift in (0.0, 0.1))
    assert result.before > restless > quiet > 0.0
    assert restless > 0.12  # 1.28 times the drift that all kernels share
    assert result.achieved(scatter, done[:5], 0.0) > quiet


@pytest.mark.parametrize(
    ("file", "model"),
    [
        ("times-gpt2.csv", {}),
        ("times-gpt2-large.csv", {"model.name": "gpt2-large", "model.seq_len": "64"}),
    ],
)
def test_the_choice_beats_chance(file: str, model: dict[str, str]) -> None:
    scenario = load_scenario(SCENARIOS / "gpt2-small-cpu.yaml", model)
    record = Record.of(read(DATA / file), scenario)
    assert len(record.cases) == 151
    inside, shares = [], []
    for count in (5, 10, 20, 40, 80):
        chosen = replay(record, count, None)
        chance = [replay(record, count, seed).mean for seed in range(3)]
        shares.append(chosen.mean / float(np.mean(chance)))
        inside.append(chosen.inside)
    assert float(np.exp(np.mean(np.log(shares)))) < 0.85
    assert max(shares) < 1.5  # three draws may be lucky at one count
    assert 0.65 <= float(np.mean(inside)) <= 0.95  # of an 80 % interval


def test_a_choice_without_plans_of_weight_is_still_spread() -> None:
    candidates = [candidate(2.0**i) for i in range(40)]
    result: Choice = choose(candidates, np.zeros((1, 40)), 30.0, cpu=False)
    assert len(result.measured) == 20


def test_what_is_held_is_not_measured_again() -> None:
    candidates = [candidate(2.0**i) for i in range(10)]
    weights = np.array([[0.5, *[0.5 / 9] * 9]])
    first = choose(candidates, weights, 5.0, cpu=False)
    second = choose(candidates, weights, 5.0, cpu=False, known=first.measured)
    assert first.measured[0] == 0
    assert set(first.measured) | set(second.measured) == set(range(10))
    assert second.before == pytest.approx(first.expected)
    assert second.expected < first.expected


def earlier(
    points: dict[str, tuple[tuple[float, ...], ...]],
    day: str = "2026-11-01",
    drift: str = ", drift 2.1 %",
) -> Calibration:
    device = replace(load_catalog().device("cpu"), residuals=points)
    source = f"measured {day} by parsim calibrate on one core, fp32, torch 2.13.0{drift}"
    return Calibration(
        file="old.yaml", device=device, system=None, base=("cpu", "cpu"), sources=(source,)
    )


def test_a_second_calibration_measures_something_new() -> None:
    made = setting_for(CPU, [SCENARIOS / "gpt2-small-cpu.yaml"])
    first = choice_for(made, 20.0)
    rows: dict[str, list[tuple[float, ...]]] = {}
    for i in first.measured:
        kind, where = first.candidates[i].shape
        rows.setdefault(kind, []).append((*(float(f"{x:.6g}") for x in where), 1.1))
    old = earlier({kind: tuple(points) for kind, points in rows.items()})
    known = shapes_known(old, "2.13.0", datetime.date(2026, 11, 21))
    second = choice_for(made, 20.0, known)
    assert set(second.known) == set(first.measured)
    assert not set(second.measured) & set(first.measured)
    assert len(second.measured) > 10
    assert second.expected < first.expected
    assert f"; {len(first.measured)} others are in the file to merge;" in announced(second)


@pytest.mark.parametrize(
    ("day", "torch", "drift", "count"),
    [
        ("2026-11-01", "2.13.0", ", drift 2.1 %", 1),
        ("2026-11-01", "2.13.0", ", CUDA 13.0, drift 2.1 %", 1),
        ("2026-09-01", "2.13.0", ", drift 2.1 %", 0),
        ("2026-11-01", "2.14.0", ", drift 2.1 %", 0),
        ("2026-11-01", "2.13.0", ", drift 3.1 %", 0),
        ("2026-11-01", "2.13.0", "", 0),
    ],
)
def test_what_may_have_changed_is_not_held(day: str, torch: str, drift: str, count: int) -> None:
    old = earlier({"gemm": ((64.0, 64.0, 64.0, 1.2),)}, day, drift)
    assert len(shapes_known(old, torch, datetime.date(2026, 11, 21))) == count
    assert shapes_known(None, torch, datetime.date(2026, 11, 21)) == frozenset()


def test_where_all_is_held_all_is_measured_again() -> None:
    system = load_catalog().system("cpu")
    pairs = RankGroups(sizes=(2,), experts=(2,), devices=2)

    def chosen(known: frozenset[Shape] = frozenset()) -> Choice:
        return link_choice(system, pairs, memory=1e9, seconds=1e3, cpu=True, known=known)

    every = frozenset(as_written(shape_of(case)) for case in link_cases(pairs))
    assert len(chosen(every).measured) == len(chosen().measured)
    some = frozenset(entry for entry in every if entry[0] == "all_reduce")
    kinds = {entry.kind for entry in chosen(some).cases}
    assert kinds == set(LINKS) - {"all_reduce"}


LINKED = """
description: one plan on two ranks
model: {name: gpt2, num_layers: 2, seq_len: 128, padded_vocab_size: 50304}
cluster: {system: cpu, nodes: 1, devices_per_node: 2}
software: executor-cpu
training: {global_batch_size: 8, precision: fp32}
plan: {microbatch_size: 2, PLAN}
"""


@pytest.mark.parametrize(
    ("plan", "sent"),
    [
        ("dp: 2", {"all_reduce"}),
        ("dp: 2, zero_stage: 3", {"all_gather", "reduce_scatter"}),
        ("tp: 2", {"all_reduce"}),
        ("tp: 2, sequence_parallel: true", {"all_gather"}),
        ("pp: 2, schedule: 1f1b", {"send_recv"}),
    ],
)
def test_collectives_that_the_plan_sends_come_first(
    tmp_path: Path, plan: str, sent: set[str]
) -> None:
    path = tmp_path / "plan.yaml"
    path.write_text(LINKED.replace("PLAN", plan))
    chosen = setting_for(CPU, [path])
    system = load_catalog().system("cpu")
    needs = link_needs(chosen.targets, system)
    assert sent <= {kind for kind, _ in needs}
    assert sum(share[0] for share in needs.values()) == pytest.approx(1.0)
    picked = link_choice(system, chosen.groups, memory=1e9, seconds=6.0, cpu=True, needs=needs)
    order = [picked.candidates[i].shape for i in picked.measured]
    largest = max(needs, key=lambda shape: float(needs[shape][0]))
    assert largest[0] in sent
    assert order[0][0] == largest[0]
    assert largest in order
    assert {kind for kind, _ in order} >= sent


def test_plans_without_links_leave_all_alike() -> None:
    groups = RankGroups(sizes=(2,), devices=2)
    picked = link_choice(
        load_catalog().system("cpu"), groups, memory=1e9, seconds=4.0, cpu=True, needs={}
    )
    assert picked.weights == pytest.approx(1.0 / len(picked.candidates))


def test_kernels_that_were_not_measured_are_gaps_by_kind_and_reason() -> None:
    picked = choice_for(setting_for(CPU), 20.0)
    late = picked.cases[:2]
    shapes = [shape_of(case) for case in late]
    gaps = kernel_gaps(picked, [(late[0], "out of memory"), (late[1], "time over")])
    text = {(gap.kind, gap.reason) for gap in gaps}
    shares = dict(
        zip((x.shape for x in picked.candidates), picked.weights.mean(axis=0), strict=True)
    )
    for shape, reason in zip(shapes, ("out of memory", "time over"), strict=True):
        assert ((shape[0], reason) in text) == (shares[shape] > 0.0)
    refused = [x for x in picked.candidates if x.refused and shares[x.shape] > 0.0]
    assert {(x.shape[0], x.refused) for x in refused} <= text
    assert all(x.cost == float("inf") for x in refused)


def test_links_that_were_not_measured_are_gaps() -> None:
    groups = RankGroups(sizes=(2,), left_out=(4,), devices=2)
    picked = link_choice(load_catalog().system("cpu"), groups, memory=1e9, seconds=4.0, cpu=True)
    done = [Sample(kind=x.kind, shape=x.shape, seconds=1.0) for x in picked.cases[1:]]
    first, four = link_gaps(picked, done, groups, CPU)
    assert (first.kind, first.reason) == (picked.cases[0].kind, "time over")
    assert first.words.startswith("1 sizes of ")
    assert four.reason.startswith("not representable: this machine has 2 devices")
    assert "--oversubscribe" in four.reason
    alone = RankGroups(sizes=(), devices=1)
    assert link_gaps(picked, (), alone, CPU) == []
