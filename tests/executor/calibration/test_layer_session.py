"""Whole layers: what is timed first, what is left out and why, what is timed again."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("torch")

import torch
import torch.distributed as dist

from executor.calibration.cases.setting import setting_for
from executor.calibration.cases.workloads import Workload
from executor.calibration.choice.layer_tasks import LayerTask, layer_tasks, ordered
from executor.calibration.gaps import Gap, by_share, is_out_of_memory, unmeasured_kinds
from executor.calibration.timing import passes
from executor.calibration.timing.layer_session import LayerSession, between, quicker
from executor.calibration.timing.layers import LayerSample
from executor.calibration.timing.pace import Pace
from executor.calibration.timing.passes import PassTimer, Queue, passes_of
from executor.devices.machine import DeviceReport
from parsim.cluster.reader import load_catalog
from parsim.model.transformer import build_transformer

CPU = DeviceReport(kind="cpu", backend="gloo", count=2, names=("cpu",), shareable=True)
SCENARIOS = Path(__file__).parents[3] / "scenarios"
MODEL = "name: gpt2, num_layers: 2, seq_len: 128, padded_vocab_size: 50304"
PLANS = f"""
description: GPT-2 small under several splits on two cores
model: {{{MODEL}}}
cluster: {{system: cpu, nodes: 1, devices_per_node: 2}}
software: executor-cpu
training: {{global_batch_size: 8, precision: fp32}}
"""


def tasks_of(folder: Path, more: str = "", model: str = MODEL) -> tuple[LayerTask, ...]:
    path = folder / "plans.yaml"
    path.write_text(PLANS.replace(MODEL, model) + more)
    return layer_tasks(setting_for(CPU, [path]), load_catalog().system("cpu"))


def test_a_plan_s_own_layers_come_first(tmp_path: Path) -> None:
    plan = "plan: {tp: 2, sequence_parallel: true, microbatch_size: 2}\n"
    tasks = tasks_of(tmp_path, plan)
    first = [(task.kind, task.asked_for) for task in tasks[:3]]
    assert set(first) == {
        ("sequence_block", True),
        ("sequence_head", True),
        ("sequence_embedding", True),
    }
    shares = [task.share for task in tasks[:3]]
    assert shares == sorted(shares, reverse=True)
    assert sum(shares) == pytest.approx(1.0)
    # usual sizes of the same kinds follow, then kinds that this plan does not have
    needed = [task.share > 0.0 for task in tasks]
    assert needed == sorted(needed, reverse=True)
    assert not any(task.asked_for for task in tasks[3:])


def test_layers_that_share_sequences_are_timed_so(tmp_path: Path) -> None:
    """Blocks with their exchanges, on whole sequences; the rest on one rank's part of them."""
    kinds = {"context_block", "embedding", "head"}
    tasks = tasks_of(tmp_path, "plan: {cp: 2}\n", f"{MODEL}, dropout: false")
    asked_for = [task for task in tasks if task.asked_for]
    lengths = {task.kind: task.workload.spec.seq_len for task in asked_for}
    assert lengths["context_block"] == 128
    assert lengths["embedding"] == lengths["head"] == 64
    assert {task.kind for task in asked_for if task.share > 0.0} == kinds
    assert any("cp 2" in task.words for task in asked_for)


def test_layers_that_share_experts_are_timed_so(tmp_path: Path) -> None:
    """Blocks with their exchanges, on as few ranks as hold all experts; the rest on one rank."""
    path = tmp_path / "mixture.yaml"
    path.write_text((SCENARIOS / "mixture-small-cpu.yaml").read_text())
    tasks = layer_tasks(setting_for(CPU, [path]), load_catalog().system("cpu"))
    asked_for = {task.kind: task for task in tasks if task.asked_for}
    needed = {kind for kind, task in asked_for.items() if task.share > 0.0}
    assert needed == {"dispatched_expert_block", "embedding", "head"}
    shared = asked_for["dispatched_expert_block"]
    assert (shared.workload.plan.ep, shared.workload.plan.world_size) == (2, 2)
    assert shared.exchanges
    assert "ep 2" in shared.words
    assert not asked_for["expert_block"].exchanges
    assert asked_for["expert_block"].share == 0.0


def test_sharding_of_a_gated_model_is_timed_where_it_is_asked_for(tmp_path: Path) -> None:
    model = (
        "family: llama, name: tiny, num_layers: 2, hidden_size: 64, num_attention_heads: 4, "
        "vocab_size: 256, seq_len: 128"
    )
    tasks = tasks_of(tmp_path, "plan: {dp: 2, zero_stage: 3}\n", model)
    sharded = [task for task in tasks if task.kind == "sharded"]
    assert [task.share > 0.0 for task in sharded if task.asked_for] == [True]
    assert not any(task.workload.spec.gated_mlp for task in sharded if not task.asked_for)


def test_every_part_of_a_space_comes_before_a_second_size_of_one(tmp_path: Path) -> None:
    tasks = tasks_of(tmp_path, "search: {}\n")
    asked_for = [task for task in tasks if task.asked_for]
    kinds = {task.kind for task in asked_for if task.share > 0.0}
    assert {"block", "split_block", "head", "embedding"} <= kinds
    assert {task.kind for task in tasks[: len(kinds)]} == kinds
    assert len({task.workload.plan.microbatch_size for task in asked_for}) > 1


class Machine:
    """A machine whose clock a task moves by so many times its cost; `slow` are its first times."""

    def __init__(self, pace: float = 1.0, slow: float = 1.0) -> None:
        self.now = 0.0
        self.pace = pace
        self.slow = slow
        self.timed: list[str] = []
        self.full: frozenset[str] = frozenset()

    def time(self, task: LayerTask, seconds: float) -> list[LayerSample] | None:
        if task.kind in self.full:
            return None
        self.now += max(self.pace * task.cost, seconds)
        again = task.kind in self.timed
        self.timed.append(task.kind)
        factor = 1.0 if again else self.slow
        return [LayerSample(task.workload, task.part, 0.001 * factor, 0.002 * factor)]

    def session(self, end: float) -> LayerSession:
        return LayerSession(
            time_task=self.time, agree=lambda value: value, clock=lambda: self.now, end=end
        )


def few_tasks() -> list[LayerTask]:
    workload = setting_for(CPU).asked_for[0]
    parts = (("block", 0.9, 4.0), ("head", 0.08, 1.0), ("embedding", 0.02, 0.5))
    return [
        LayerTask(workload=workload, part=part, share=share, asked_for=True, cost=cost)
        for part, share, cost in parts
    ]


def test_one_that_is_too_long_does_not_shut_the_others_out() -> None:
    machine, tasks = Machine(), few_tasks()
    long_one = replace(tasks[1], cost=50.0)
    session = machine.session(end=10.0)
    session.first_pass([tasks[0], long_one, tasks[2]], 8.0)
    assert machine.timed == ["block", "embedding"]
    assert [gap.kind for gap in session.gaps] == ["head"]
    assert session.gaps[0].reason.startswith("time over: about ")
    assert session.gaps[0].share == 0.08


def test_a_slow_machine_leaves_out_what_no_longer_fits() -> None:
    machine, tasks = Machine(pace=4.0), few_tasks()
    session = machine.session(end=18.0)
    session.first_pass(tasks, 8.0)  # 16 s for the blocks: 2 are left, 4 and 2 are needed
    assert machine.timed == ["block", "embedding"]
    assert "about 4.0 s, 2.0 s left" in session.gaps[0].reason


def test_what_runs_out_of_memory_is_a_gap() -> None:
    machine, tasks = Machine(), few_tasks()
    machine.full = frozenset({"block"})
    session = machine.session(end=60.0)
    session.first_pass(tasks, 20.0)
    assert [(gap.kind, gap.reason) for gap in session.gaps] == [("block", "out of memory")]
    assert machine.timed == ["head", "embedding"]


def test_layers_that_kernels_contradict_are_timed_again() -> None:
    machine, tasks = Machine(slow=1.5), few_tasks()
    session = machine.session(end=60.0)
    session.first_pass(tasks, 8.0)

    def deviations(samples: Sequence[LayerSample]) -> list[float]:
        return [0.4 if samples[0].part == "block" else 0.01]

    session.second_pass(tasks, deviations)
    assert machine.timed == ["block", "head", "embedding", "block"]
    assert session.repeated == 1
    block = session.samples[0]
    mean = math.sqrt(1.5)
    assert (block.forward, block.backward) == pytest.approx((0.001 * mean, 0.002 * mean))
    assert block.scatter == pytest.approx([math.log(1.5) / 2**0.5] * 2)
    assert session.samples[1].scatter == (0.0, 0.0)


def test_beside_other_processes_the_quicker_of_two_times_counts() -> None:
    machine, tasks = Machine(slow=1.5), few_tasks()
    session = machine.session(end=60.0)
    session.queued = lambda: 0.5
    session.first_pass(tasks, 8.0)
    session.second_pass(tasks, lambda samples: [0.4 * (samples[0].part == "block")])
    block = session.samples[0]
    assert (block.forward, block.backward) == (0.001, 0.002)


def test_nothing_is_timed_again_when_the_time_is_over() -> None:
    machine, tasks = Machine(), few_tasks()
    session = machine.session(end=8.0)
    session.first_pass(tasks, 8.0)
    machine.now = 7.9
    session.second_pass(tasks, lambda _: [1.0])
    assert session.repeated == 0


def test_waits_stay_with_their_seconds(tmp_path: Path) -> None:
    workload = few_tasks()[0].workload
    slow, quick = (
        [LayerSample(workload, "block", x, x), LayerSample(workload, "block_waited", share, share)]
        for x, share in ((2.0, 0.8), (1.0, 0.3))
    )
    assert [sample.forward for sample in quicker(slow, quick)] == [1.0, 0.3]
    assert quicker(slow, quick) == quicker(quick, slow)
    both = between(slow, quick)
    assert [sample.forward for sample in both] == pytest.approx([math.sqrt(2.0), math.sqrt(0.24)])


def test_a_busy_machine_s_least_round_counts() -> None:
    rounds = [(1.0, 2.0), (1.2, 2.0), (3.0, 2.0)]
    quiet, busy = passes_of(rounds), passes_of(rounds, busy=True)
    assert (quiet.forward, busy.forward) == (1.2, 1.0)
    assert busy.scatter == pytest.approx((math.log(1.2), 0.0))
    assert quiet.scatter[1] == 0.0
    assert quiet.scatter[0] > 0.1


def test_messages_of_ranks_are_no_other_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passes, "probed", lambda: 0.0)
    monkeypatch.setattr(Queue, "share", property(lambda _: 0.5))
    monkeypatch.setattr(dist, "broadcast", lambda *_: None)
    monkeypatch.setattr(dist, "all_reduce", lambda *_, **__: None)
    device = torch.device("cpu")
    timer = PassTimer(device, Pace(device), idle=False)
    inputs = torch.randn(4, 4)
    timer.times(torch.nn.Linear(4, 4), inputs, None, 0.0)
    timer.times(torch.nn.Linear(4, 4), inputs, None, 0.0, exchanges=True)
    alone, together = timer.queued
    assert alone >= 0.5 > together  # a core may be slow while this runs


def test_errors_that_say_that_memory_is_out() -> None:
    assert is_out_of_memory(MemoryError())
    assert is_out_of_memory(torch.OutOfMemoryError("CUDA out of memory"))
    assert is_out_of_memory(RuntimeError("DefaultCPUAllocator: can't allocate memory: you ..."))
    assert not is_out_of_memory(RuntimeError("shapes cannot be multiplied"))
    assert not is_out_of_memory(KeyError("out of memory"))


def test_only_kinds_without_any_measurement_stay_in_the_file() -> None:
    gaps = [
        Gap(kind="block", words="width 640", reason="time over: 5 s", share=0.9, wanted=False),
        Gap(kind="sharded", words="width 768", reason="out of memory", share=0.3),
        Gap(kind="sharded", words="width 128", reason="time over: 1 s", share=0.3, wanted=False),
    ]
    assert unmeasured_kinds(gaps, {"block"}) == {"sharded": "out of memory"}
    assert [(gap.words, gap.share) for gap in by_share(gaps, {"block"})] == [
        ("width 768", 0.3),
        ("width 640", 0.0),
        ("width 128", 0.0),
    ]


def test_equal_tasks_keep_their_order() -> None:
    first = few_tasks()[0]
    spec = replace(first.workload.spec, name="twin")
    twin = replace(first, workload=Workload(spec=spec, plan=first.workload.plan))
    assert [task.workload.spec.name for task in ordered([first, twin])] == [
        first.workload.spec.name,
        "twin",
    ]


def test_tasks_of_one_workload_come_together_where_shares_tie() -> None:
    first = replace(few_tasks()[0], share=0.0, asked_for=False)
    spec = replace(first.workload.spec, name="twin")
    twin = replace(first, workload=Workload(spec=spec, plan=first.workload.plan))
    tasks = [replace(first, cost=cost) for cost in (1.0, 3.0)]
    tasks += [replace(twin, cost=cost) for cost in (4.0, 2.0)]
    assert [task.cost for task in ordered(tasks)] == [1.0, 3.0, 2.0, 4.0]
    shared = [replace(task, share=0.1 * task.cost, asked_for=True) for task in tasks]
    assert [task.cost for task in ordered(shared)][1:] == [4.0, 3.0, 2.0]  # by share all the same


def test_own_sizes_repeat_longer_than_usual_ones() -> None:
    machine = Machine()
    asked_for = replace(few_tasks()[0], cost=0.1)
    usual = [replace(asked_for, asked_for=False) for _ in range(4)]
    session = machine.session(end=100.0)
    session.first_pass([asked_for, *usual], 10.0)
    assert machine.now == pytest.approx(7.0)  # FIRST of the seconds
    budgets: list[float] = []

    def noted(_: LayerTask, seconds: float) -> list[LayerSample]:
        budgets.append(seconds)
        return []

    session.time_task = noted
    session.first_pass([asked_for, *usual], 10.0)
    assert budgets[0] > 3.0 * budgets[1]  # of 7 s: 1 / (1 + 4 / 20)


@pytest.mark.parametrize("added", ["expert_every: 2", "dense_layers: 1"])
def test_layers_of_mixed_chains_are_timed_in_chains_of_their_own(
    tmp_path: Path, added: str
) -> None:
    text = (SCENARIOS / "mixture-small-cpu.yaml").read_text()
    path = tmp_path / "mixture.yaml"
    path.write_text(text.replace("num_experts: 16", f"num_experts: 16\n  {added}"))
    setting = setting_for(CPU, [path])
    tasks = [task for task in layer_tasks(setting, load_catalog().system("cpu")) if task.asked_for]
    blocks = [task for task in tasks if task.part == "block"]
    assert {task.layer for task in blocks} == {"block", "expert_block"}
    for task in blocks:
        assert len({layer.name for layer in task.workload.model.blocks}) == 1
    (spec,) = {target.workload.spec for target in setting.targets if target.workload}
    of_model = {layer.name: layer for layer in build_transformer(spec).blocks}
    for task in blocks:  # they compute what the model's do
        timed = task.workload.model.blocks[0]
        assert timed.make_up == of_model[task.layer].make_up
        assert timed.forward_flops(1) == of_model[task.layer].forward_flops(1)
    ends = [task.part for task in tasks if task.part in ("embedding", "head")]
    assert len(ends) == len(set(ends))  # the ends once


def test_usual_sizes_leave_time_to_time_again() -> None:
    machine = Machine()
    asked_for = replace(few_tasks()[0], cost=2.0)
    usual = [replace(asked_for, asked_for=False) for _ in range(4)]
    session = machine.session(end=10.0)
    session.first_pass([asked_for, *usual], 5.0)
    assert len(machine.timed) == 3  # of 10 s 7; each takes 2 at least, the own one more
    session.second_pass([asked_for, *usual], lambda _: [0.2])
    assert session.repeated >= 1
    assert machine.now <= 10.0
