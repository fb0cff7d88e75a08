"""What is asked of a GPU, rehearsed on a CPU: every line of `Cuda`, through its callers."""

from __future__ import annotations

import inspect
import json
import math
import os
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor  # noqa: E402
from torch import distributed as dist  # noqa: E402

from executor.calibration.timing import ballast as ballast_module  # noqa: E402
from executor.calibration.timing.bench import Bench  # noqa: E402
from executor.checkpoint.pieces import generator_states, set_generators  # noqa: E402
from executor.collectives.timing import ran  # noqa: E402
from executor.devices.accelerator import (  # noqa: E402
    HOST,
    Cuda,
    accelerator,
    gpu_names,
    in_use,
)
from executor.first_hour.alone import alone, scenario_of  # noqa: E402
from executor.first_hour.kernels import described, profiled  # noqa: E402
from executor.first_hour.speed import compared  # noqa: E402
from executor.measure.device_state import DeviceMonitor  # noqa: E402
from executor.measure.memory import peak_bytes  # noqa: E402
from executor.measure.record import BLIND, record_steps  # noqa: E402
from executor.measure.steps import take_steps  # noqa: E402
from executor.measure.traffic import Traffic  # noqa: E402
from executor.model.mixture import grouped  # noqa: E402
from executor.model.module import build_model  # noqa: E402
from executor.model.offload import keep_on_host  # noqa: E402
from executor.torch_internals.kernels import GROUPED_MM  # noqa: E402
from parsim.timelines.kinds import SpanKind  # noqa: E402
from tests.executor.fake_cuda import FakeCuda  # noqa: E402
from tests.executor.rehearsal import rehearsed  # noqa: E402
from tests.executor.tiny import draw, gradients, tiny  # noqa: E402

CPU = torch.device("cpu")
MODEL = {"name": "gpt2", "num_layers": 2, "hidden_size": 32, "num_attention_heads": 2}
MODEL |= {"num_key_value_heads": 2, "head_dim": 16, "ffn_hidden_size": 64, "positions": 16}
MODEL |= {"vocab_size": 256, "seq_len": 16, "dropout": False}


@pytest.fixture
def cuda() -> Iterator[FakeCuda]:
    """Asked in place of the CPU."""
    fake = FakeCuda()
    with rehearsed(Cuda(CPU, fake)):
        yield fake


def test_the_stand_in_takes_what_torch_takes() -> None:
    for name, method in inspect.getmembers(FakeCuda, inspect.isfunction):
        if name.startswith("_"):
            continue
        theirs = getattr(torch.cuda, name)
        if not inspect.isclass(theirs):
            mine = list(inspect.signature(method).parameters)[1:]
            assert mine == list(inspect.signature(theirs).parameters), name
    assert {"record", "synchronize", "elapsed_time"} <= set(dir(torch.cuda.Event))
    assert list(inspect.signature(torch.cuda.Event.elapsed_time).parameters)[1:] == ["end_event"]


def test_a_gpu_is_asked_through_torch_and_a_cpu_not_at_all() -> None:
    assert accelerator(CPU) is HOST
    asked = accelerator(torch.device("cuda", 1))
    assert isinstance(asked, Cuda)
    assert asked.queued
    assert (HOST.clock(), HOST.power(), HOST.peak_allocated()) == (None, None, None)


def test_a_machine_and_its_clean_up_are_asked_through_it_too(cuda: FakeCuda) -> None:
    assert gpu_names(cuda) == ("GPU 0", "GPU 1")
    assert not in_use(cuda)
    asked = accelerator(CPU)
    asked.choose()
    assert in_use(cuda)
    asked.mark()
    assert asked.release() == 500.0
    assert cuda.calls == ["set", "synchronize", "empty"]
    assert HOST.release() is None


def test_a_whole_run_of_one_rank(cuda: FakeCuda, tmp_path: Path) -> None:
    """Steps, their states, a recorded timeline, the peak, kernels and the race with plain torch."""
    told: list[Any] = []
    with alone(scenario_of(json.dumps(MODEL), "cpu", tmp_path), "cpu") as here:
        steps = take_steps(
            here.trainer,
            here.endless(),
            steps=2,
            warmup=1,
            device=CPU,
            before=(),
            after_step=lambda step, _: told.append(step),
        )
        timeline = record_steps(here.trainer, here.endless(), CPU, typical=math.nan, pairs=1)
        [batch] = here.batches[:1]
        peak = peak_bytes(here.trainer, CPU, lambda: here.trainer.step(*batch))
        race = compared(here, steps=1)
        kernels = described(profiled(here))
    assert len(steps.seconds) == 2
    states = [step.device for step in told]
    assert {state.peak_allocated for state in states} == {1000.0}
    assert {state.peak_reserved for state in states} == {2000.0}
    assert {(state.clock, state.power) for state in states} == {(1.98e9, None)}
    assert peak == 1000.0
    assert timeline is not None
    kinds = {span.kind for span in timeline.spans}
    assert kinds >= {SpanKind.F, SpanKind.B, SpanKind.GRAD_NORM, SpanKind.OPTIMIZER}
    assert all(span.end >= span.start >= 0.0 for span in timeline.spans)
    assert "communication_note" not in timeline.meta
    assert race["ratio"] > 0.0
    assert kernels["kernels"] > 0
    assert cuda.calls.count("synchronize") > len(told)
    assert "RANK" not in os.environ  # what is started from here on is no rank


def test_copies_to_the_host_have_a_queue_of_their_own(cuda: FakeCuda) -> None:
    spec = tiny("llama3-8b")
    tokens, targets = draw(spec)
    stages = [build_model(spec) for _ in range(2)]
    store = keep_on_host(stages[1].layers, 4, CPU)
    assert store is not None
    here, there = (gradients(stage, tokens, targets) for stage in stages)
    assert all(torch.equal(here[name], there[name]) for name in here)
    copies = cuda.calls.count("stream")
    assert copies % 2 == 0  # each piece leaves and comes back once
    # compute waits for the layers that have left, and for pieces that it needs
    assert copies // 2 <= len(cuda.compute.waited)


def test_kernels_and_collectives_are_timed_between_events(
    cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ballast_module, "EDGE", 8)
    bench = Bench(CPU, "bf16")
    assert 1e-3 < bench.elapsed(lambda: time.sleep(1e-3), 3) < 0.1
    began, ended = ran(lambda: time.sleep(1e-3), 2, CPU)
    assert began == 0.0
    assert ended > 2e-3
    assert cuda.calls.count("synchronize") == 5


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_queue_is_filled_for_the_seconds_that_are_planned(
    cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch, precision: str
) -> None:
    """Products of 1 ms or more: at most three, in fp16 whatever is calibrated."""
    multiplied: list[object] = []

    def product(a: Tensor, b: Tensor) -> Tensor:
        multiplied.append(a.dtype)
        time.sleep(1e-3 if len(multiplied) > 1 else 0.1)  # the first one is slow
        return a

    monkeypatch.setattr(ballast_module, "EDGE", 8)
    monkeypatch.setattr(torch, "mm", product)
    bench = Bench(CPU, precision)
    multiplied.clear()
    bench.elapsed(lambda: None, 1)
    assert 1 <= len(multiplied) <= 3
    assert set(multiplied) == {torch.float16}


def test_clock_and_power_are_asked_once_a_second(cuda: FakeCuda) -> None:
    monitor = DeviceMonitor(CPU)
    first = monitor.look()
    cuda.clock_rate = lambda device=None: 345  # type: ignore[method-assign]
    assert monitor.look().clock == first.clock == 1.98e9


def test_the_devices_generator_goes_on(cuda: FakeCuda, one_rank: None) -> None:
    saved = generator_states(CPU)
    assert [piece.name for piece in saved] == ["rng/0/cpu", "rng/0/device"]
    cuda.state.zero_()
    set_generators(CPU, saved)
    assert cuda.state.tolist() == list(range(16))
    assert [piece.name for piece in generator_states(CPU)][1:] == ["rng/0/device"]


def test_grouped_products_are_one_kernel_there(cuda: FakeCuda) -> None:
    assert grouped.in_one_launch(torch.ones(2, 8, dtype=torch.bfloat16), 16)
    assert not grouped.in_one_launch(torch.ones(2, 8), 16)
    assert not grouped.in_one_launch(torch.ones(2, 9, dtype=torch.bfloat16), 16)
    assert not grouped.in_one_launch(torch.ones(2, 8, dtype=torch.bfloat16), 9)


@pytest.mark.parametrize(("inner", "outer", "launches"), [(8, 16, 3), (8, 12, 0), (12, 8, 0)])
def test_products_with_rows_that_are_not_aligned_are_a_loop(
    inner: int, outer: int, launches: int, cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []

    def launched(left: Any, right: Any, offs: Any) -> Any:
        asked.append(left.shape)
        return GROUPED_MM(left, right, offs=offs)

    monkeypatch.setattr(grouped, "GROUPED_MM", launched)
    rows = torch.ones(4, inner, dtype=torch.bfloat16, requires_grad=True)
    weights = torch.ones(2, outer, inner, dtype=torch.bfloat16, requires_grad=True)
    counts = grouped.Counts(torch.tensor([1, 3]), 4)
    out = grouped.grouped(rows, weights, counts)
    assert torch.equal(out, torch.full((4, outer), inner, dtype=torch.bfloat16))
    out.square().sum().backward()
    assert len(asked) == launches


def test_a_profiler_that_sees_no_kernel_says_so(
    cuda: FakeCuda, one_rank: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without CUPTI a run would seem to communicate nothing."""
    monkeypatch.setattr(dist, "get_backend", lambda *_: "nccl")
    monkeypatch.setattr(dist, "get_world_size", lambda *_: 2)
    monkeypatch.setattr("executor.torch_internals.profiler.start_ranges", lambda *, kernels: None)
    ranges: list[Any] = []
    monkeypatch.setattr("executor.torch_internals.profiler.stop_ranges", lambda: ranges)
    traffic = Traffic({"dp": [dist.group.WORLD]}, CPU)
    traffic.learn()
    assert traffic.blind
    assert "unknown, not 0" in BLIND
    ranges.append((_kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL"), True))
    traffic.learn()
    assert not traffic.blind
    traffic.start()
    ranges.append((_kernel("ampere_bf16_gemm"), True))
    [transfer] = traffic.stop()
    assert (transfer.stream, transfer.operation) == ("dp", "AllReduce")


def _kernel(name: str) -> SimpleNamespace:
    begin = time.time_ns()
    return SimpleNamespace(
        name=lambda: name,
        start_ns=lambda: begin,
        end_ns=lambda: begin + 1000,
        device_resource_id=lambda: 7,
        start_thread_id=lambda: 1,
    )
