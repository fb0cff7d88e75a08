"""One GPU, whole runs: every model family verified, checkpoints, faults, the suite.

Run with `pytest -m gpu tests/executor/test_cuda_whole.py`. With PARSIM_GPU_TESTS=cpu the same tests
run on a machine without a GPU: a rehearsal, so that a slip in them costs no time on one.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import distributed as dist  # noqa: E402
from torch.distributed.pipelining import _backward as pipelining  # noqa: E402

from executor.devices.machine import probe  # noqa: E402
from executor.devices.mesh import DIMS, mesh_of  # noqa: E402
from executor.model.first_values import none_zero, seeded  # noqa: E402
from executor.model.loss import cross_entropy  # noqa: E402
from executor.model.module import build_model, build_stage  # noqa: E402
from executor.model.repeat import backward_in_two  # noqa: E402
from executor.parallel.fully_shard import shard_fully  # noqa: E402
from executor.suite.__main__ import main as suite  # noqa: E402
from parsim.cli.app import main  # noqa: E402
from parsim.plan import Plan, Recompute  # noqa: E402
from parsim.timelines.reader import load_timeline  # noqa: E402
from tests.executor.launch import fork_runs  # noqa: E402
from tests.executor.running import Run  # noqa: E402
from tests.executor.tiny import draw, tiny  # noqa: E402

DEVICE = os.environ.get("PARSIM_GPU_TESTS") or "cuda"
SYSTEM = "cpu" if DEVICE == "cpu" else "dgx-h100"

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        DEVICE != "cpu" and not torch.cuda.is_available(), reason="torch sees no GPU"
    ),
]

SIZES = "num_layers: 2, hidden_size: 64, num_attention_heads: 4, vocab_size: 256, seq_len: 64"
KEYS = "num_key_value_heads: 2, ffn_hidden_size: 128"
EXPERTS = "num_experts: 4, experts_per_token: 2, expert_ffn_hidden_size: 64"
LATENT = "head_dim: 48, rope_head_dim: 16, value_head_dim: 32, q_lora_rank: 64, kv_lora_rank: 32"
GROUPS = "expert_groups: 2, groups_per_token: 1, dense_layers: 1"
SHARED = "shared_expert_ffn_hidden_size: 64, routed_scaling_factor: 2.5"
PICTURES = "image_size: 64, num_classes: 10"
MODELS = {
    "gpt2": SIZES,
    "bert": f"{SIZES}, head: mlm",
    "llama": f"{SIZES}, {KEYS}",
    "mistral": f"{SIZES}, {KEYS}, window: 16",
    "qwen2": f"{SIZES}, {KEYS}",
    "phi3": f"{SIZES}, {KEYS}, rope_head_dim: 8",
    "gemma": f"{SIZES}, {KEYS}",
    "gemma2": f"{SIZES}, {KEYS}, window: 16",
    "gemma3_text": f"{SIZES}, {KEYS}, window: 16",
    "glm4": f"{SIZES}, {KEYS}",
    "granite": f"{SIZES}, {KEYS}, embedding_scale: 3.0, residual_scale: 0.5, logit_scale: 0.5",
    "nemotron": f"{SIZES}, {KEYS}",
    "gpt_neox": f"{SIZES}",
    "opt": SIZES,
    "bloom": SIZES,
    "mixtral": f"{SIZES}, {KEYS}, {EXPERTS}",
    "qwen3_moe": f"{SIZES}, {KEYS}, {EXPERTS}, head_dim: 16",
    "deepseek_v3": f"{SIZES}, ffn_hidden_size: 128, {LATENT}, {EXPERTS}, {GROUPS}, {SHARED}",
    "resnet18": PICTURES,
    "vgg16": PICTURES,
}
"""What a model block says beside the family of a transformer, or the name of a network."""

SWITCHES = {
    "adapters": "model.lora_rank=4",
    "fp16 with a scaled loss": "training.precision=fp16_amp",
    "compiled layers": "software.compile=true",
    "offloaded activations": "plan.offload_layers=1",
    "full recomputation": "plan.recompute=full",
    "optimizer on the host": "plan.optimizer_offload=true",
}
"""What a plan can switch on that has kernels, streams or copies of its own on a GPU."""


def scenario(folder: Path, name: str = "gpt2", *, ranks: int = 1, precision: str = "fp32") -> Path:
    """A scenario of a tiny model: `name` is its family, or the network itself."""
    network = MODELS[name] == PICTURES
    kind = f"name: {name}" if network else f"family: {name}, name: tiny"
    path = folder / f"{name}.yaml"
    path.write_text(
        f"description: a tiny {name}\n"
        f"model: {{{kind}, {MODELS[name]}}}\n"
        f"cluster: {{system: {SYSTEM}, nodes: 1, devices_per_node: {ranks}}}\n"
        f"software: executor-{DEVICE}\n"
        f"training: {{global_batch_size: 4, precision: {precision}}}\n"
        f"plan: {{dp: {ranks}, microbatch_size: 2}}\n"
    )
    return path


Runner = Callable[..., dict[str, Any]]


@pytest.fixture
def run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Runner:
    """Runs a scenario in forked ranks, which begin in no time; its document."""
    fork_runs(monkeypatch, tmp_path)

    def take(path: Path, *words: str) -> dict[str, Any]:
        out = ["--out", str(tmp_path / "out"), "--device", DEVICE, "--json"]
        assert main(["run", str(path), *out, *words]) == 0
        document: dict[str, Any] = json.loads(capsys.readouterr().out)
        return document

    return take


@pytest.mark.parametrize(
    ("name", "precision"),
    [
        (name, precision)
        for name, block in MODELS.items()
        # so few images of so many layers say nothing in 16 bit: rounding alone turns gradients
        for precision in ("fp32", *(() if block == PICTURES else ("bf16_amp",)))
        # a GPU's kernel that knows windows is for 16 bit: `check_context` refuses others there,
        # but for capped scores, which no kernel knows
        if "window" not in block or name == "gemma2" or precision != "fp32" or DEVICE == "cpu"
    ],
)
def test_every_family_is_verified(run: Runner, tmp_path: Path, name: str, precision: str) -> None:
    path = scenario(tmp_path, name, precision=precision)
    document = run(path, "--verify", "--steps", "2", "--warmup", "1")
    assert document["verify"]["within"]
    exact = 1e-4 if MODELS[name] == PICTURES else 1e-5
    assert document["verify"]["bound"] <= (exact if precision == "fp32" else 1.0)


@pytest.mark.parametrize("switch", SWITCHES)
def test_every_switch_is_verified(run: Runner, tmp_path: Path, switch: str) -> None:
    if DEVICE == "cpu" and "optimizer_offload" in SWITCHES[switch]:
        pytest.skip("the device is its host")
    words = ("--verify", "--steps", "2", "--warmup", "1", "--set", SWITCHES[switch])
    assert run(scenario(tmp_path, "llama"), *words)["verify"]["within"]


@pytest.mark.parametrize("model", ["llama3-8b", "mixtral-8x7b"])
@pytest.mark.parametrize("recomputed", [False, True])
def test_a_backward_in_two_gives_the_gradients_of_a_whole_one(
    model: str, *, recomputed: bool
) -> None:
    """Layers with adapters beside frozen weights, as a stage in the middle of a pipeline has."""
    recompute = Recompute.FULL if recomputed else Recompute.NONE
    stage = build_stage(
        tiny(model, lora_rank=4),
        first_layer=0,
        num_layers=2,
        embedding=False,
        head=False,
        device=torch.device(DEVICE),
        recompute=recompute,
        values=none_zero(seeded(0)),
    )
    x = torch.randn(2, 16, tiny(model).hidden_size, device=DEVICE, requires_grad=True)
    grad = torch.randn_like(x)
    trained = [p for p in stage.parameters() if p.requires_grad]
    wanted = torch.autograd.grad(stage(x), [x, *trained], grad)
    with backward_in_two(True):
        out = stage(x)
    _, groups = pipelining.stage_backward_input([out], [grad], [x], stage.parameters())
    pipelining.stage_backward_weight(stage.parameters(), groups)
    for entry, other in zip([x, *trained], wanted, strict=True):
        torch.testing.assert_close(entry.grad, other, rtol=1e-4, atol=1e-5)
    assert all(p.grad is None for p in stage.parameters() if not p.requires_grad)


@pytest.fixture
def alone() -> Iterator[Any]:
    """A world of this process alone over the backend of its device; the device."""
    device = torch.device(DEVICE) if DEVICE == "cpu" else torch.device(DEVICE, 0)
    bound = None if DEVICE == "cpu" else device
    where = {"store": dist.HashStore(), "rank": 0, "world_size": 1, "device_id": bound}
    dist.init_process_group(probe(DEVICE).backend, **where)
    yield device
    dist.destroy_process_group()


@pytest.mark.parametrize("zero_stage", [2, 3])
def test_sharded_blocks_give_the_gradients_of_whole_ones(alone: Any, zero_stage: int) -> None:
    """Streams, gathering and scattering of `fully_shard`, which takes a group of one rank too."""
    spec, plan = tiny("llama3-8b"), Plan(zero_stage=zero_stage, dp_shard=2, precision="fp32")
    tokens, targets = (values.to(alone) for values in draw(spec))
    whole, sharded = (build_model(spec, device=alone) for _ in range(2))
    shard_fully(
        sharded, plan, mesh_of(DEVICE, torch.zeros(1, 1, 1, 1, dtype=torch.int64), DIMS), None
    )
    for _ in range(2):
        for model in (whole, sharded):
            cross_entropy(model(tokens), targets).backward()
    for (name, plain), other in zip(whole.named_parameters(), sharded.parameters(), strict=True):
        gradient = other.grad.full_tensor()
        torch.testing.assert_close(gradient, plain.grad, rtol=1e-4, atol=1e-6, msg=name)


def test_each_step_tells_of_the_device(run: Runner, tmp_path: Path) -> None:
    run(scenario(tmp_path), "--steps", "3", "--warmup", "1")
    lines = (tmp_path / "out" / "steps.jsonl").read_text().splitlines()
    steps = [json.loads(line) for line in lines]
    assert len(steps) == 4
    for step in steps:
        known = step["peak_allocated_bytes"], step["peak_reserved_bytes"]
        assert known == (None, None) if DEVICE == "cpu" else 0 < known[0] <= known[1]


def test_training_goes_on_from_a_checkpoint(run: Runner, tmp_path: Path) -> None:
    path = scenario(tmp_path)
    whole = run(path, "--steps", "6", "--warmup", "0")["measured"]["loss"]
    words = ("--warmup", "0", "--checkpoint-every", "2")
    run(path, "--steps", "2", *words)
    resumed = run(path, "--steps", "6", *words, "--resume")["measured"]["loss"]
    assert resumed == pytest.approx(whole, rel=1e-5)


def test_a_killed_rank_is_named(tmp_path: Path) -> None:
    endless = Run(
        tmp_path / "run",
        *("--steps", "1000000", "--device", DEVICE),
        scenario=scenario(tmp_path).read_text(),
    )
    try:
        os.kill(endless.rank(0), signal.SIGKILL)
        code, told = endless.end(timeout=120.0)
    finally:
        endless.kill()
    assert code == 5
    assert told[-1].startswith("error: rank 0 was killed by SIGKILL at step ")


def test_a_model_too_large_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if DEVICE == "cpu":
        pytest.skip("the system would kill whatever it likes")
    # segments that grow would take all there is, page by page, before they give up: tests beside
    # this one would have none for seconds
    monkeypatch.setenv("PYTORCH_ALLOC_CONF", "expandable_segments:False")
    path = scenario(tmp_path)
    words = ["run", str(path), "--device", DEVICE, "--out", str(tmp_path / "out")]
    changes = ("model.vocab_size=128000", "model.seq_len=8192", "training.global_batch_size=512")
    words += [word for change in changes for word in ("--set", change)]
    assert main([*words, "--set", "plan.microbatch_size=512"]) == 5
    assert "out of memory" in capsys.readouterr().err


def test_ranks_on_all_devices_have_communication_in_their_timeline(
    run: Runner, tmp_path: Path
) -> None:
    report = probe(DEVICE)
    if report.count < 2 and not report.shareable:
        pytest.skip("one GPU, which NCCL does not share")
    document = run(scenario(tmp_path, ranks=2), "--steps", "3", "--oversubscribe", "--verify")
    assert document["verify"]["within"]
    timeline = load_timeline(tmp_path / "out" / "timeline.json")
    for rank in (0, 1):
        reduced = [span for span in timeline.on(rank, "dp") if span.kind == "REDUCE_GRAD"]
        assert reduced
        assert all(span.duration > 0.0 for span in reduced)


def test_the_quick_suite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "suite"
    words = ["executor.suite", str(out), "--quick", "--device", DEVICE, "--seconds", "240"]
    monkeypatch.setattr(sys, "argv", words)
    assert suite() == 0
    report = json.loads((out / "report.json").read_text())
    assert report["failed"] == {}
    assert report["cases"]
