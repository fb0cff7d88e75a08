"""Worker: training steps of small models on a GPU that is none; what each ended with.

Arguments: folder for the results, then the names of cases.
"""

from __future__ import annotations

import sys
import traceback
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.testing._internal.distributed.fake_pg import FakeStore

from executor.model.attention.shaped import Shape
from executor.training import build, trainer
from executor.training.build import build_trainer
from executor.training.update_rule import OptimizerConfig
from parsim.model.graph.catalog import network
from parsim.model.graph.record import Graph
from parsim.model.reader import Description
from parsim.model.transformer import TransformerSpec
from parsim.plan import Plan
from tests.executor.fake_cuda import FakeCuda
from tests.executor.fake_gpu import GPU, fake_gpu, load_guard
from tests.executor.launch import die_with_parent, results
from tests.executor.tiny import tiny
from tests.executor.workers.specs import DEEPSEEK

EVEN: dict[str, Any] = {"padded_vocab_size": 104}
EXPERTS: dict[str, Any] = {"num_experts": 4, "experts_per_token": 2, "expert_ffn_hidden_size": 16}
TURNED: dict[str, Any] = {"rope_head_dim": 4}
LLAMA = tiny("llama3-8b", **EVEN)
MODELS: dict[str, TransformerSpec] = {
    "gpt2": tiny("gpt2", **EVEN),
    "bert": tiny("bert-base", **EVEN),
    "llama": LLAMA,
    "llama with adapters": replace(LLAMA, lora_rank=4),
    "mistral": tiny("mistral-7b", window=5, **EVEN),
    "qwen2": tiny("qwen2-7b", **EVEN),
    "phi": tiny("phi-3-mini", **EVEN),
    "phi4": tiny("phi-4", **EVEN),
    "gemma": tiny("gemma-7b", **EVEN),
    "gemma2": tiny("gemma2-9b", window=5, **EVEN),
    "gemma2 with adapters": tiny("gemma2-9b", window=5, lora_rank=4, **EVEN),
    "gemma3": tiny("gemma3-12b", window=5, **EVEN),
    "glm4": tiny("glm4-9b", **TURNED, **EVEN),
    "granite": tiny("granite-3.1-8b", **EVEN),
    "stablelm": tiny("stablelm-2-1.6b", **TURNED, **EVEN),
    "starcoder2": tiny("starcoder2-7b", **EVEN),
    "nemotron": tiny("nemotron-4-15b", **TURNED, **EVEN),
    "smollm3": tiny("smollm3-3b", **EVEN),
    "seed-oss": tiny("seed-oss-36b", **EVEN),
    "gpt-neox": tiny("gpt-neox-20b", **TURNED, **EVEN),
    "opt": tiny("opt-1.3b", **EVEN),
    "bloom": tiny("bloom", **EVEN),
    "mixtral": tiny("mixtral-8x7b", **EXPERTS, **EVEN),
    "deepseek": replace(DEEPSEEK, num_layers=2),
}
PRECISIONS = ("fp32", "bf16", "bf16_amp")
FAMILIES = {
    f"{name} in {precision}": (spec, Plan(num_microbatches=2, precision=precision))
    for name, spec in MODELS.items()
    for precision in PRECISIONS
    # a GPU's kernel that knows windows is for 16 bit: such models are refused in fp32
    if not any(map(spec.has_window, range(spec.num_layers)))
    or precision != "fp32"
    or spec.attention_cap
}
NETWORKS = {
    f"{name} in {precision}": (
        network(name, 64, 10),
        Plan(num_microbatches=2, microbatch_size=2, precision=precision),
    )
    for name in ("resnet18", "vgg16")
    for precision in PRECISIONS
}
PLANS: dict[str, Any] = {
    "tensor parallel": {"tp": 2},
    "tensor and sequence parallel": {"tp": 2, "sequence_parallel": True},
    "DDP": {"dp_replicate": 2},
    "ZeRO 1": {"dp_shard": 2, "zero_stage": 1, "precision": "bf16"},
    "recomputed": {"recompute": "full"},
    "activations on the host": {"offload_layers": 1, "precision": "bf16_amp"},
    "optimizer on the host": {"optimizer_offload": True},
    "optimizer on the host, AMP": {"optimizer_offload": True, "precision": "bf16_amp"},
}
SPLIT = {
    f"{name}, {how}": (MODELS[name], Plan(num_microbatches=2, **fields))
    for name in ("llama", "llama with adapters", "gemma2", "bloom")
    for how, fields in PLANS.items()
}
ASKED = ("set_device", "device_count", "current_device", "get_device_capability")
"""What torch itself asks of `torch.cuda` where it spreads parameters over ranks."""

FAKE = FakeCuda()
CASES: dict[str, tuple[Description, Plan]] = {**FAMILIES, **NETWORKS, **SPLIT}


def step(spec: Description, plan: Plan) -> None:
    """Build a rank's part of a plan and take one step: gradients, their norm, the update."""
    store = FakeStore()
    dist.init_process_group("fake", rank=0, world_size=plan.world_size, store=store)
    try:
        with fake_gpu():
            made = build_trainer(
                spec,
                plan,
                device=GPU,
                seed=0,
                values=lambda _, shape: torch.empty(shape),
                optimizer=OptimizerConfig(clip=1.0),
            )
            made.step(*_batch(spec, 2 * plan.microbatch_size))
            _check(made)
    finally:
        dist.destroy_process_group()


def _batch(spec: Description, rows: int) -> tuple[torch.Tensor, torch.Tensor]:
    """What a model reads, and the answers."""
    if isinstance(spec, Graph):
        images = torch.zeros(rows, *spec.input_shape, device=GPU)
        return images, torch.zeros(rows, 1, dtype=torch.int64, device=GPU)
    tokens = torch.zeros(rows, spec.seq_len, dtype=torch.int64, device=GPU)
    return tokens, tokens


def _check(made: trainer.Trainer) -> None:
    """Each weight that is trained has had a gradient, where it lies itself."""
    for name, parameter in made.replicas[0].stage.named_parameters():
        assert parameter.device == GPU, name
        if parameter.requires_grad and made.replicas[0].kind != "buckets":
            assert parameter.grad is not None, name
            assert parameter.grad.device == GPU, name


def groups_outside(cls: Any, *given: Any) -> Any:
    """Numbers of ranks have values."""
    with unset_fake_temporarily():
        return groups_of(cls, *given)


groups_of: Any = build._Groups.of.__func__  # type: ignore[attr-defined]


def ended(name: str, patch: pytest.MonkeyPatch) -> str:
    """How a case ended; a name behind "slip: " leaves its slopes where they are."""
    slip = name.startswith("slip: ")
    with patch.context() as inner:
        if slip:
            inner.setattr(Shape, "on", lambda shape, _: shape)
        try:
            step(*CASES[name.removeprefix("slip: ")])
        except Exception:
            return traceback.format_exc()
    return "done"


def main() -> None:
    """Take a step of each case."""
    die_with_parent()
    folder, *names = sys.argv[1:]
    if torch.version.cuda is None:  # a build for CUDA has one
        load_guard(Path(folder))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(build._Groups, "of", classmethod(groups_outside))
        patch.setattr(trainer, "_known", lambda losses: [loss.shape for loss in losses])
        for name in ASKED:
            patch.setattr(torch.cuda, name, getattr(FAKE, name))
        results(folder, 0, {name: ended(name, patch) for name in names})


if __name__ == "__main__":
    main()
