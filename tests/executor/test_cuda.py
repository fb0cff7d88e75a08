"""One GPU: gradients, recomputation, peak memory and spans of real runs; skipped without CUDA.

Run with `pytest -m gpu tests/executor/test_cuda.py`.
"""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.nn.functional import scaled_dot_product_attention  # noqa: E402

from executor.devices.machine import base_device, probe  # noqa: E402
from executor.torch_internals import kernels  # noqa: E402
from parsim.cli.app import main  # noqa: E402
from parsim.cluster.reader import load_catalog  # noqa: E402
from parsim.cost.collective.group_bandwidth import one_group  # noqa: E402
from parsim.cost.collective.measured_curve import collective_spread  # noqa: E402
from parsim.errors import InputError  # noqa: E402
from parsim.timelines.reader import load_timeline  # noqa: E402
from tests.executor.launch import fork_runs  # noqa: E402

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU"),
]

SCENARIO = """
description: GPT-2 on one GPU
model: {name: gpt2, num_layers: 4, seq_len: 256, dropout: false}
cluster: {system: dgx-h100, nodes: 1, devices_per_node: 1}
training: {global_batch_size: 8, precision: fp32}
plan: {microbatch_size: 2}
"""


@pytest.fixture
def scenario(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A scenario whose runs fork their rank, which begins in no time."""
    fork_runs(monkeypatch, tmp_path)
    path = tmp_path / "gpu.yaml"
    path.write_text(SCENARIO)
    return path


def run(
    scenario: Path, capsys: pytest.CaptureFixture[str], *changes: str, verify: bool = False
) -> dict[str, Any]:
    words = ["run", str(scenario), "--device", "cuda", "--steps", "3", "--warmup", "2", "--json"]
    words += ["--out", str(scenario.parent / "out"), *(["--verify"] if verify else [])]
    words += [word for change in changes for word in ("--set", change)]
    assert main(words) == 0
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


@pytest.mark.parametrize("precision", ["fp32", "bf16", "bf16_amp"])
def test_gradients(scenario: Path, capsys: pytest.CaptureFixture[str], precision: str) -> None:
    result = run(scenario, capsys, f"training.precision={precision}", verify=True)
    assert result["backend"] == "nccl"
    assert result["verify"]["within"]
    assert result["verify"]["bound"] <= (1e-5 if precision == "fp32" else 0.15)
    assert result["measured"]["loss"][-1] < result["measured"]["loss"][0]


def test_recomputation_changes_memory_and_not_the_loss(
    scenario: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = {
        name: run(scenario, capsys, f"plan.recompute={name}", "training.precision=bf16")["measured"]
        for name in ("none", "selective", "full")
    }
    peaks = {name: run_of["peak_allocated_bytes"][0] for name, run_of in result.items()}
    assert peaks["full"] < peaks["selective"] <= peaks["none"]
    for name in ("selective", "full"):
        assert result[name]["loss"] == pytest.approx(result["none"]["loss"], rel=0.02)


def test_peak_memory_is_near_the_prediction(
    scenario: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    changes = ("model.num_layers=12", "model.seq_len=1024", "training.global_batch_size=16")
    result = run(scenario, capsys, *changes, "plan.microbatch_size=8", "training.precision=bf16")
    assert abs(result["error"]["peak_memory"]) <= 0.15
    assert result["measured"]["peak_allocated_bytes"][0] > 2e9  # 124e6 parameters x 16 bytes


def test_spans_of_events_fill_the_step(scenario: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = run(scenario, capsys, "model.seq_len=1024", "plan.microbatch_size=4")
    timeline = load_timeline(scenario.parent / "out" / "timeline.json")
    kinds = [span.kind for span in timeline.on(0, "compute")]
    assert kinds == ["F", "B", "F", "B", "GRAD_NORM", "OPTIMIZER"]
    spans = sorted(timeline.on(0, "compute"), key=lambda span: span.start)
    assert all(span.duration > 0.0 for span in spans)
    assert all(a.end <= b.start + 1e-4 for a, b in pairwise(spans))
    step = result["measured"]["step_time_s"]["median"]
    assert 0.3 * step < timeline.busy(0) < 3.0 * step


def test_more_ranks_than_gpus_are_refused(
    scenario: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ranks = torch.cuda.device_count() + 1
    words = ["run", str(scenario), "--device", "cuda", "--set", f"plan.dp={ranks}"]
    words += ["--set", f"training.global_batch_size={2 * ranks}"]
    words += ["--set", f"cluster.devices_per_node={ranks}"]
    if ranks > 8:
        pytest.skip("the system of the scenario has 8 GPUs a node")
    assert main(words) == 2
    assert f"error: world size {ranks} " in capsys.readouterr().err


def test_calibration_times_every_group_of_this_machine(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Measured as on CPU ranks; groups of two, four and eight where there are so many GPUs."""
    report = probe("cuda")
    try:
        base_device(report)
    except InputError:
        pytest.skip("the catalog has no such GPU")
    out, count = tmp_path / "device.yaml", report.count
    words = ["calibrate", "--out", str(out), "--seconds", "25", "--device", "cuda", "--json"]
    assert main(words) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["seconds"] <= 90.0
    if count == 1 and not report.shareable:
        assert document["groups"]["sizes"] == []
        assert document["system"] is None
        return
    sizes = [2**i for i in range(1, 5) if 2**i <= max(count, 2)]
    assert document["groups"]["sizes"] == sizes
    assert {curve["ranks"] for curve in document["system"]["curves"]} == set(sizes)
    system = load_catalog([out]).system(document["system"]["id"])
    rates = [curve.bandwidth for curve in system.curves if curve.collective == "all_reduce"]
    assert min(rates) > 1e9
    for ranks in sizes:
        where = one_group(system, ranks)
        known = collective_spread(system, "all_reduce", 2.0**26, where)[0]
        assert known == pytest.approx(0.12)


def test_a_gpus_blocks_of_queries() -> None:
    """Gradients of either half of the queries add up to those of all."""
    q, k, v, grad = (torch.randn(2, 4, 64, 64, device="cuda", dtype=torch.bfloat16) for _ in "qkvg")
    out, lse = kernels.attend(q, k, v, causal=False)
    wanted = kernels.attend_backward(grad, q, k, v, out, lse, causal=False)
    halves = []
    for at in (slice(0, 32), slice(32, None)):
        here, mine, result, sums = (x[:, :, at] for x in (grad, q, out, lse))
        halves.append(kernels.attend_backward(here, mine, k, v, result, sums, causal=False))
    by_query = torch.cat([half[0] for half in halves], 2)
    torch.testing.assert_close(by_query, wanted[0], rtol=2e-2, atol=2e-2)
    for index in (1, 2):
        total = halves[0][index] + halves[1][index]
        torch.testing.assert_close(total, wanted[index], rtol=2e-2, atol=2e-2)


def test_kernels_of_a_gpu() -> None:
    q, k, v = (torch.randn(2, 4, 64, 64, device="cuda", dtype=torch.bfloat16) for _ in range(3))
    for entry in (q, k, v):
        entry.requires_grad_(True)
    expected = scaled_dot_product_attention(q, k, v, is_causal=True)
    grad = torch.randn_like(expected)
    wanted = torch.autograd.grad(expected, (q, k, v), grad)
    with torch.no_grad():
        out, lse = kernels.attend(q, k, v, causal=True)
        result = kernels.attend_backward(grad, q, k, v, out, lse, causal=True)
    torch.testing.assert_close(out, expected, rtol=2e-2, atol=2e-2)
    for entry, other in zip(result, wanted, strict=True):
        torch.testing.assert_close(entry, other, rtol=2e-2, atol=2e-2)
