"""Published models through many plans and out again, on four ranks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from parsim.model.config.file import read_config
from parsim.model.huggingface import spec_from_config
from tests.executor.launch import launch

torch = pytest.importorskip("torch")

from executor.weights.published import CONFIG, INDEX, Published  # noqa: E402
from executor.weights.safetensors import File  # noqa: E402

if TYPE_CHECKING:
    from torch import Tensor

PUBLISHED = Path(__file__).parent / "published"
WORKER = Path(__file__).parents[1] / "workers" / "weights.py"
MANY = {"microbatch_size": 1, "precision": "fp32"}
PIPE = {**MANY, "pp": 2, "schedule": "1f1b"}
DP = {"dp_replicate": 4}
PLANS: dict[str, dict[str, Any]] = {
    "ddp": {**MANY, **DP, "num_microbatches": 1},
    "zero1": {**MANY, "dp_shard": 4, "zero_stage": 1, "num_microbatches": 1},
    "zero2": {**MANY, "dp_shard": 4, "zero_stage": 2, "num_microbatches": 1},
    "hsdp": {**MANY, "dp_shard": 2, "dp_replicate": 2, "zero_stage": 3, "num_microbatches": 1},
    "tp-pp": {**PIPE, "tp": 2, "sequence_parallel": True, "num_microbatches": 4},
    "pp-zero1": {**PIPE, "dp_shard": 2, "zero_stage": 1, "num_microbatches": 2},
    "tp-zero3": {**MANY, "tp": 2, "dp_shard": 2, "zero_stage": 3, "num_microbatches": 2},
}
EXPERTS: dict[str, dict[str, Any]] = {
    "ddp": PLANS["ddp"],
    "ep": {**MANY, **DP, "ep": 4, "num_microbatches": 1},
    "ep-etp": {**MANY, **DP, "ep": 2, "etp": 2, "num_microbatches": 1},
    "zero3": {**MANY, "dp_shard": 4, "zero_stage": 3, "num_microbatches": 1},
}
# a vocabulary that tensor ranks share equally is padded; what is exported is not
PADDED = {"padded_vocab_size": 40}
ADAPTERS = {**PADDED, "lora_rank": 4}
CASES = (
    {
        f"{model}-{name}": {"model": model, "plan": plan, "changes": PADDED}
        for model in ("gpt2", "qwen2")
        for name, plan in PLANS.items()  # of Qwen2 there is one head of keys, which two ranks copy
    }
    | {
        # adapters that begin as zero change nothing, and what they learn is merged
        f"qwen2-{name}-adapters": {"model": "qwen2", "plan": PLANS[name], "changes": ADAPTERS}
        for name in ("ddp", "zero1", "hsdp", "pp-zero1", "tp-pp", "tp-zero3")
    }
    | {f"mixtral-{name}": {"model": "mixtral", "plan": plan} for name, plan in EXPERTS.items()}
)


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for each case, with what the plan exported before and after a step."""
    folder = tmp_path_factory.mktemp("exported")
    cases = folder / "cases.json"
    cases.write_text(json.dumps(CASES))
    launch(WORKER, str(PUBLISHED), str(cases), ranks=4, folder=folder, timeout=240.0)
    return folder


def tensors(folder: Path) -> dict[str, Tensor]:
    index = folder / INDEX
    first = {"model.safetensors"}
    names = set(json.loads(index.read_text())["weight_map"].values()) if index.exists() else first
    files = [File(folder / name) for name in names]
    return {name: file.tensor(name) for file in files for name in file.contents()}


@pytest.mark.distributed
@pytest.mark.parametrize("name", CASES)
def test_what_went_in_comes_out(exported: Path, name: str) -> None:
    source = PUBLISHED / str(CASES[name]["model"])
    result, stored = tensors(exported / name / "first"), tensors(source / "")
    assert result.keys() == stored.keys()
    assert all(torch.equal(result[tensor], stored[tensor]) for tensor in stored)
    spec = spec_from_config(read_config(exported / name / "first" / CONFIG), name="x", seq_len=32)
    assert spec.vocab_size == 37
    Published(exported / name / "first", spec).check()


@pytest.mark.distributed
@pytest.mark.parametrize("name", CASES)
def test_all_plans_train_the_same_weights(exported: Path, name: str) -> None:
    model, adapters = str(CASES[name]["model"]), "-adapters" * name.endswith("-adapters")
    result = tensors(exported / name / "second")
    expected = tensors(exported / f"{model}-ddp{adapters}" / "second")
    before = tensors(PUBLISHED / model)
    if adapters:  # whose weights alone are merged with something
        assert torch.equal(expected["lm_head.weight"], before["lm_head.weight"])
        learned = "model.layers.0.self_attn.v_proj.weight"
        assert not torch.equal(expected[learned], before[learned])
    elif model != "gpt2":  # which has no head of its own
        assert not torch.equal(expected["lm_head.weight"], before["lm_head.weight"])
    for tensor, values in expected.items():
        assert torch.allclose(result[tensor], values, rtol=1e-4, atol=1e-5), tensor
