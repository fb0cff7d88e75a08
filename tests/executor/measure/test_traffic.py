"""What the profiler's ranges and kernels mean, without running anything."""

from __future__ import annotations

from collections.abc import Callable
from threading import Thread
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")
import torch.distributed as dist  # noqa: E402

from executor.measure.traffic import Range, Traffic, collective  # noqa: E402
from executor.parallel.ring import CONTEXT_RANGE  # noqa: E402
from executor.pipeline.outbox import BESIDE  # noqa: E402
from executor.torch_internals import profiler  # noqa: E402

Watch = Callable[..., Traffic]


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Watch:
    """A Traffic whose next recording has the given ranges."""

    def made(device: str, backend: str, streams: list[str], ranges: list[Range]) -> Traffic:
        monkeypatch.setattr(dist, "get_world_size", lambda: 2)
        monkeypatch.setattr(dist, "get_backend", lambda: backend)
        monkeypatch.setattr(profiler, "start_ranges", lambda **_: None)
        traffic = Traffic({stream: [] for stream in streams}, torch.device(device))
        monkeypatch.setattr(traffic, "_ranges", lambda: ranges)
        return traffic

    return made


@pytest.mark.parametrize(
    ("name", "operation"),
    [
        ("gloo:all_reduce", "all_reduce"),
        ("gloo:send", "send"),
        ("ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevKernelArgsStorage)", "ReduceScatter"),
        ("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", "SendRecv"),
        ("ncclKernel_AllReduce_RING_LL_Sum_float", "AllReduce"),
        ("Optimizer.step#AdamW.step", None),
        ("FSDP::all_gather (layers.0)", None),
        ("sm90_xmma_gemm_bf16bf16_bf16f32", None),
    ],
)
def test_names_that_communicate(name: str, operation: str | None) -> None:
    assert collective(name) == operation


def test_on_gloo_waits_are_those_of_the_functions_that_wait(watch: Watch) -> None:
    ranges = [
        Range("gloo:all_reduce", 1.0, 2.0, 7, False),
        Range("gloo:send", 0.0, 9.0, 1, False),
        Range("gloo:barrier", 0.0, 9.0, 5, False),
        Range("FSDP::pre_forward", 0.0, 3.0, 1, False),
    ]
    traffic = watch("cpu", "gloo", ["dp"], ranges)
    traffic.waits.append((1.5, 2.25))
    (result,) = traffic.stop()
    assert (result.stream, result.start, result.end, result.exposed) == (
        "dp",
        1.0,
        2.25,
        ((1.5, 2.25),),
    )


def test_on_nccl_exposed_is_where_no_kernel_runs(watch: Watch) -> None:
    ranges = [
        Range("nccl:all_reduce", 0.5, 0.6, 1, False),
        Range("ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)", 1.0, 5.0, 20, True),
        Range("ncclDevKernel_SendRecv(x)", 0.0, 9.0, 21, True),
        Range("gemm", 0.0, 2.0, 7, True),
        Range("gemm", 4.0, 6.0, 7, True),
    ]
    (result,) = watch("cuda", "nccl", ["tp"], ranges).stop()
    assert (result.stream, result.operation, result.exposed) == ("tp", "AllReduce", ((2.0, 4.0),))


@pytest.mark.parametrize(
    ("device", "backend", "unknown"), [("cpu", "gloo", "tp"), ("cuda", "nccl", "dp")]
)
def test_groups_are_told_apart_by_what_they_run_on(
    watch: Watch, device: str, backend: str, unknown: str
) -> None:
    name = "gloo:all_reduce" if device == "cpu" else "ncclDevKernel_AllReduce_Sum"
    on_device = device == "cuda"
    ranges = [Range(name, 1.0 + i, 1.5 + i, i, on_device) for i in range(3)]
    traffic = watch(device, backend, ["tp", "dp"], ranges)
    traffic._channels = {0: "tp", 1: "dp"}
    assert [entry.stream for entry in traffic.stop()] == ["tp", "dp", unknown]


def test_a_ring_is_told_from_messages_between_stages(watch: Watch) -> None:
    on_cpu = [Range(CONTEXT_RANGE, 1.0, 2.0, 1, False), Range("gloo:send", 1.0, 2.0, 1, False)]
    (result,) = watch("cpu", "gloo", ["tp", "dp"], on_cpu).stop()
    assert (result.stream, result.operation, result.start) == ("tp", "send_recv", 1.0)
    name = "ncclDevKernel_SendRecv"
    traffic = watch(
        "cuda", "nccl", ["tp", "dp"], [Range(name, 1.0 + i, 2.0, i, True) for i in range(3)]
    )
    traffic._channels = {1: "tp", 2: "dp"}
    (result,) = traffic.stop()
    assert (result.stream, result.start) == ("tp", 2.0)


@pytest.mark.parametrize(("name", "waits"), [(BESIDE, 1), ("autograd's", 2)])
def test_what_a_thread_beside_the_step_waits_for_is_no_wait(
    name: str, waits: int, watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = SimpleNamespace(wait=lambda value: value + 1)
    monkeypatch.setattr("executor.measure.traffic.WAITS", ((owner, "wait"),))
    traffic = watch("cpu", "gloo", ["dp"], [])
    traffic.start()
    thread = Thread(target=lambda: owner.wait(1), name=name)
    thread.start()
    thread.join()
    assert owner.wait(1) == 2
    traffic.stop()
    assert len(traffic.waits) == waits


def test_a_wait_is_timed_and_put_back(watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    owner = SimpleNamespace(wait=lambda value: value + 1)
    original = owner.wait
    monkeypatch.setattr("executor.measure.traffic.WAITS", ((owner, "wait"),))
    traffic = watch("cpu", "gloo", ["dp"], [])
    traffic.start()
    assert owner.wait(1) == 2
    ((begin, end),) = traffic.waits
    assert begin <= end
    assert traffic.stop() == []
    assert owner.wait is original


def test_one_rank_alone_has_nothing_to_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dist, "get_world_size", lambda: 1)
    monkeypatch.setattr(dist, "get_backend", lambda: "gloo")
    monkeypatch.setattr(
        profiler, "start_ranges", lambda **_: pytest.fail("the profiler was started")
    )
    traffic = Traffic({}, torch.device("cpu"))
    traffic.learn()
    traffic.start()
    assert traffic.stop() == []


def test_the_profiler_records_named_ranges_and_no_operators() -> None:
    profiler.start_ranges(kernels=False)
    with torch.profiler.record_function("named"):
        torch.ones(3) + 1
    result = profiler.stop_ranges()
    assert [(event.name(), on_device) for event, on_device in result] == [("named", False)]
    assert result[0][0].start_ns() <= result[0][0].end_ns()
