"""Models that transformers wrote: read, differentiated and written again as transformers has them.

`published/` holds small models with random weights, and their loss and gradients as transformers
5.24 with torch 2.13 found them in fp32 on a CPU (`make_published.py`); those of mixtures include
the balance of their experts.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from parsim.errors import InputError
from parsim.model.config.file import read_config
from parsim.model.config.writer import config_from_spec
from parsim.model.huggingface import spec_from_config
from parsim.model.transformer import TransformerSpec

torch = pytest.importorskip("torch")

from executor.model.loss import cross_entropy  # noqa: E402
from executor.model.module import build_model  # noqa: E402
from executor.model.stage import Stage  # noqa: E402
from executor.weights.export import StageTensors, check_export  # noqa: E402
from executor.weights.published import Published  # noqa: E402
from executor.weights.safetensors import File, write  # noqa: E402

if TYPE_CHECKING:
    from torch import Tensor

PUBLISHED = Path(__file__).parent / "published"
NAMES = sorted(path.name for path in PUBLISHED.iterdir())
each_published = pytest.mark.parametrize("name", NAMES)


def read(name: str) -> TransformerSpec:
    return spec_from_config(read_config(PUBLISHED / name), name=name, seq_len=32)


def tensors(file: Path) -> dict[str, Tensor]:
    opened = File(file)
    return {name: opened.tensor(name) for name in opened.contents()}


def as_published(stage: Stage) -> dict[str, Tensor]:
    written = StageTensors(stage)
    return dict(zip(written.contents(), written.values(), strict=True))


def trained(name: str, **changes: object) -> tuple[Stage, float]:
    """A published model after backward, and its loss."""
    spec = replace(read(name), dropout=False, **changes)  # type: ignore[arg-type]
    model = build_model(spec, values=Published(PUBLISHED / name, spec))
    given = tensors(PUBLISHED / name / "expected.safetensors")
    value = cross_entropy(model(given["tokens"]), given["targets"], words=spec.vocab_size)
    value.backward()
    return model, float(value.detach())


@each_published
def test_loss_and_gradients_are_those_of_transformers(name: str) -> None:
    model, value = trained(name)
    expected = tensors(PUBLISHED / name / "expected.safetensors")["loss"]
    assert value == pytest.approx(float(expected), rel=1e-6)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(
                torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            )
    result, exact = as_published(model), tensors(PUBLISHED / name / "gradients.safetensors")
    for unused in set(exact) - set(result):  # of BERT's next-sentence classifier
        assert "seq_relationship" in unused
    largest = max(float(gradient.abs().max()) for gradient in exact.values())
    for tensor, gradient in result.items():
        assert torch.allclose(gradient, exact[tensor], rtol=1e-4, atol=3e-6 * largest), tensor


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("llama3", {"rope_theta": 10_000.0}),
        ("llama3", {"rope_scaling": "none"}),
        ("llama-yarn", {"rope_attention_factor": 1.0}),
        ("llama-linear", {"rope_factor": 1.5}),
        ("gpt2", {"norm_epsilon": 1e-5}),
        ("qwen3-moe", {"norm_topk_prob": True}),
        ("gemma", {"activation": "usual"}),
        ("gemma", {"offset_norms": False}),
        ("gemma", {"embedding_scale": 1.0}),
        ("gemma2", {"attention_cap": 0.0}),
        ("gemma2", {"logit_cap": 0.0}),
        ("gemma2", {"attention_scale": 0.0}),
        ("gemma2", {"full_every": 0}),
        ("gemma3", {"window_rope_theta": 0.0}),
        ("glm4", {"rope_interleaved": False}),
        ("glm4", {"rope_head_dim": 0}),
        ("granite", {"residual_scale": 1.0}),
        ("granite", {"logit_scale": 1.0}),
        ("smollm3", {"unrotated_every": 0}),
        ("nemotron", {"activation": "relu"}),
        ("gpt-neox", {"parallel_block": "none"}),
        ("gpt-neox", {"activation": "silu"}),
        ("opt", {"first_position": 0}),
        ("bloom", {"alibi": False}),
    ],
)
def test_another_rotation_norm_or_routing_is_another_loss(
    name: str, changes: dict[str, object]
) -> None:
    expected = float(tensors(PUBLISHED / name / "expected.safetensors")["loss"])
    assert abs(trained(name, **changes)[1] / expected - 1) > 1e-5


@each_published
def test_what_is_read_is_written_under_the_same_names(name: str) -> None:
    spec = read(name)
    written = as_published(build_model(spec, values=Published(PUBLISHED / name, spec)))
    stored = tensors(PUBLISHED / name / "model.safetensors")
    assert all(torch.equal(written[tensor], stored[tensor]) for tensor in written)
    assert all("seq_relationship" in unused for unused in set(stored) - set(written))


@each_published
def test_the_config_written_beside_weights_reads_as_the_same_model(name: str) -> None:
    spec = read(name)
    assert spec_from_config(json.loads(json.dumps(config_from_spec(spec))), name=name) == replace(
        spec, seq_len=spec.positions - spec.first_position or 32
    )


def test_a_dense_qwen3_is_written_with_the_norms_of_queries_and_keys() -> None:
    sizes = {"num_hidden_layers": 1, "hidden_size": 16, "num_attention_heads": 2}
    others = {"num_key_value_heads": 1, "head_dim": 8, "intermediate_size": 24, "vocab_size": 37}
    config = {"model_type": "qwen3", **sizes, **others, "max_position_embeddings": 32}
    written = as_published(build_model(spec_from_config(config, name="x")))
    inside = {name.removeprefix("model.layers.0.") for name in written if ".layers." in name}
    modules = ("input_layernorm", "post_attention_layernorm", "mlp.gate_proj", "mlp.up_proj")
    attention = ("q_proj", "k_proj", "v_proj", "o_proj", "q_norm", "k_norm")
    assert inside == {
        *(f"{name}.weight" for name in (*modules, "mlp.down_proj")),
        *(f"self_attn.{name}.weight" for name in attention),
    }


@each_published
def test_a_whole_model_is_accepted(name: str) -> None:
    spec = read(name)
    Published(PUBLISHED / name, spec).check()


def test_padding_of_the_vocabulary_changes_neither_loss_nor_gradients() -> None:
    plain, value = trained("gpt2")
    padded, same = trained("gpt2", padded_vocab_size=64)
    assert same == pytest.approx(value, rel=1e-6)
    (table,) = (model.get_parameter("embedding.token.weight").grad for model in (padded,))
    assert torch.allclose(table[:37], plain.get_parameter("embedding.token.weight").grad, atol=1e-6)
    assert not table[37:].any()


def test_older_names_are_known(tmp_path: Path) -> None:
    older = {
        name.removeprefix("bert.")
        .replace("Norm.weight", "Norm.gamma")
        .replace("Norm.bias", "Norm.beta"): tensor
        for name, tensor in tensors(PUBLISHED / "bert" / "model.safetensors").items()
    }
    contents = {name: (tensor.dtype, tuple(tensor.shape)) for name, tensor in older.items()}
    write(tmp_path / "model.safetensors", contents, older.values())
    spec = read("bert")
    values = Published(tmp_path, spec)
    values.check()
    newer = Published(PUBLISHED / "bert", spec)
    name = "embedding.norm.weight"
    assert torch.equal(values(name, (16,)), newer(name, (16,)))


# ------------------------------------------------------------------------------------- refusals


def refused(folder: Path, spec: TransformerSpec) -> str:
    with pytest.raises(InputError) as caught:
        Published(folder, spec).check()
    return str(caught.value)


def test_adapters_are_trained_beside_a_model_whose_config_knows_none() -> None:
    spec = replace(read("llama3"), lora_rank=2, lora_targets=("linear_qkv",))
    values = Published(PUBLISHED / "llama3", spec)
    values.check()
    assert not values("layers.0.attention.columns.b.q.weight", (16, 2)).any()
    assert values("layers.0.attention.columns.a.weight", (2, 16)).any()


def test_another_model_is_refused_by_its_config() -> None:
    message = refused(PUBLISHED / "llama3", replace(read("llama3"), rope_theta=10_000.0))
    assert "rope_theta=500.0 there and 10000.0 here; run the model of that folder" in message


def test_a_family_that_computes_otherwise_is_refused(tmp_path: Path) -> None:
    """GPT-OSS has sinks, which parsim has not."""
    shutil.copytree(PUBLISHED / "mixtral", tmp_path / "other")
    config = read_config(tmp_path / "other") | {"model_type": "gpt_oss"}
    (tmp_path / "other" / "config.json").write_text(json.dumps(config), encoding="utf-8")
    message = refused(tmp_path / "other", read("mixtral"))
    assert "are left out); its weights would mean something else" in message


def test_constants_of_another_family_are_another_model(tmp_path: Path) -> None:
    """Granite has Llama's tensors by name and shape, and scales what goes through them."""
    shutil.copytree(PUBLISHED / "llama3", tmp_path / "granite")
    config = read_config(tmp_path / "granite") | {"model_type": "granite"}
    text = json.dumps({**config, "embedding_multiplier": 12.0})
    (tmp_path / "granite" / "config.json").write_text(text, encoding="utf-8")
    message = refused(tmp_path / "granite", read("llama3"))
    assert "embedding_scale=12.0 there and 1.0 here" in message


def test_another_shape_is_refused(tmp_path: Path) -> None:
    shutil.copy(PUBLISHED / "llama3" / "model.safetensors", tmp_path)
    message = refused(tmp_path, replace(read("llama3"), ffn_hidden_size=32))
    assert "model.layers.0.mlp.up_proj.weight has shape [24, 16], but" in message
    assert "needs [32, 16]" in message


def test_a_missing_tensor_is_refused(tmp_path: Path) -> None:
    shutil.copy(PUBLISHED / "llama3" / "model.safetensors", tmp_path)
    message = refused(tmp_path, replace(read("llama3"), num_layers=3))
    assert "there is no tensor model.layers.2." in message


def test_a_folder_without_weights_is_refused(tmp_path: Path) -> None:
    assert "it holds neither model.safetensors nor" in refused(tmp_path, read("llama3"))


@pytest.mark.parametrize("file", ["../other.safetensors", "other.bin", 3])
def test_an_index_that_points_elsewhere_is_refused(tmp_path: Path, file: object) -> None:
    table = {"weight_map": {"model.norm.weight": file}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(table))
    assert "names no files beside it under 'weight_map'" in refused(tmp_path, read("llama3"))


def test_a_folder_in_use_is_not_written_over(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").touch()
    with pytest.raises(InputError, match="it is not empty; name a new folder"):
        check_export(tmp_path, read("gpt2"))
