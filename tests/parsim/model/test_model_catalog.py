"""The catalog of known models."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import fields
from importlib.resources import files
from typing import Any

import pytest
from ruamel.yaml import YAML

from parsim.errors import CatalogError
from parsim.model.graph.catalog import NETWORKS
from parsim.model.reader import load_model_catalog, model_spec
from parsim.model.transformer import TransformerSpec, build_transformer

NAMES = [
    "gpt2",
    "gpt2-medium",
    "gpt2-large",
    "gpt2-xl",
    "gpt3-175b",
    "gpt3-5b",
    "gpt3-20b",
    "gpt-1.7b",
    "gpt-3.6b",
    "gpt-7.5b",
    "gpt-18.4b",
    "gpt-39.1b",
    "gpt-76.1b",
    "gpt-145.6b",
    "gpt-310.1b",
    "gpt-529.6b",
    "gpt-1008b",
    "gpipe-transformer-24",
    "gpipe-transformer-48",
    "megatron-22b",
    "megatron-530b",
    "megatron-1t",
    "llama2-7b",
    "llama2-13b",
    "llama2-70b",
    "llama3-8b",
    "llama3-70b",
    "llama3.1-8b",
    "llama3.1-70b",
    "llama3.3-70b",
    "llama3.1-405b",
    "llama3.2-1b",
    "llama3.2-3b",
    "mistral-7b",
    "mistral-nemo-12b",
    "mistral-small-3.1",
    "mistral-large-2",
    "qwen2-7b",
    "qwen2.5-0.5b",
    "qwen2.5-1.5b",
    "internlm-7b",
    "internlm-20b",
    "qwen2.5-7b",
    "qwen2.5-14b",
    "qwen2.5-32b",
    "qwen2.5-72b",
    "qwen3-8b",
    "qwen3-0.6b",
    "qwen3-1.7b",
    "qwen3-4b",
    "qwen3-14b",
    "qwen3-32b",
    "phi-3-mini",
    "phi-4",
    "gemma-7b",
    "gemma2-9b",
    "gemma2-27b",
    "gemma3-12b",
    "gemma3-27b",
    "glm4-9b",
    "granite-3.1-8b",
    "seed-oss-36b",
    "smollm3-3b",
    "starcoder2-7b",
    "stablelm-2-1.6b",
    "nemotron-4-15b",
    "gpt-neox-20b",
    "opt-1.3b",
    "bloom",
    "bert-base",
    "bert-large",
    "roberta-large",
    "mixtral-8x7b",
    "mixtral-8x22b",
    "qwen3-30b-a3b",
    "qwen3-235b-a22b",
    "glm-4.5-air",
    "glm-4.5",
    "llama-4-scout",
    "llama-4-maverick",
    "gpt-oss-20b",
    "gpt-oss-120b",
    "deepseek-v2",
    "deepseek-v2-lite",
    "moonlight-16b-a3b",
    "deepseek-v3",
    "kimi-k2",
    "hy3-295b",
    "nemotron-3-nano",
]


def test_catalog_holds_exactly_these() -> None:
    assert list(load_model_catalog()) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_entry_builds_under_its_name(name: str) -> None:
    model = build_transformer(model_spec(name))
    assert model.name == name
    assert model.parameters > 1e8


@pytest.mark.parametrize("name", NAMES)
def test_entry_has_a_source(name: str) -> None:
    text = files("parsim.model").joinpath("catalog/models.yaml").read_text(encoding="utf-8")
    source = YAML(typ="safe", pure=True).load(text)[name]["source"]
    assert "20" in source, "a year or an address with a version"
    assert len(source) > 20


@pytest.mark.parametrize("name", NAMES)
def test_entry_has_values_of_the_right_type(name: str) -> None:
    wanted: dict[str, Any] = {
        "name": str,
        "head": str,
        "layer_pattern": str,
        "padded_vocab_size": int | None,
        "lora_targets": tuple,
        "modules_to_save": tuple,
    }
    names = ("rope_scaling", "router_scoring", "activation", "parallel_block")
    wanted |= dict.fromkeys(names, str)
    kinds: dict[object, type] = {"bool": bool, "float": float}
    spec = model_spec(name)
    for field in fields(TransformerSpec):
        expected = wanted.get(field.name, kinds.get(field.type, int))
        assert isinstance(getattr(spec, field.name), expected), field.name


_DENSE = {"qwen3-0.6b", "qwen3-4b", "qwen3-32b", "mistral-nemo-12b", "mistral-small-3.1"}
_DENSE |= {"gemma-7b", "gemma2-9b", "gemma2-27b", "gemma3-12b", "gemma3-27b", "seed-oss-36b"}
ITS_OWN_WIDTH = {name for name in NAMES if model_spec(name).num_experts} | _DENSE
"""Models whose heads together are wider or narrower than the rest."""


@pytest.mark.parametrize("name", [name for name in NAMES if name not in ITS_OWN_WIDTH])
def test_heads_make_up_the_hidden_size(name: str) -> None:
    spec = model_spec(name)
    assert spec.num_attention_heads * spec.head_dim == spec.hidden_size


def test_attention_kernel_is_no_fact_of_a_model() -> None:
    assert all(spec.fused_attention for spec in load_model_catalog().values())


def test_dropout_is_on_for_gpt_and_bert_only() -> None:
    with_dropout = {name for name, spec in load_model_catalog().items() if spec.dropout}
    dense = {name for name in NAMES if not model_spec(name).num_experts}
    kin = ("gpt", "gpipe", "megatron", "bert", "opt", "roberta")
    assert with_dropout == {name for name in dense if name.startswith(kin)} - {"gpt-neox-20b"}


def test_megatron_vocabulary_is_padded() -> None:
    spec = model_spec("megatron-1t")
    assert (spec.vocab_size, spec.vocab_rows) == (50257, 51200)


def test_llama_has_no_bias_and_no_positions() -> None:
    spec = model_spec("llama3-8b")
    biases = (spec.qkv_bias, spec.projection_bias, spec.mlp_bias)
    assert biases == (False, False, False)
    assert spec.positions == 0


def test_catalog_cannot_be_changed() -> None:
    with pytest.raises(TypeError):
        load_model_catalog()["gpt2"] = model_spec("gpt2-xl")  # type: ignore[index]


def test_catalog_is_read_once() -> None:
    assert load_model_catalog() is load_model_catalog()


def test_importing_the_reader_loads_no_yaml_reader() -> None:
    code = "import sys, parsim.model.reader; sys.exit('ruamel.yaml' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_unknown_name_is_refused_with_the_closest() -> None:
    with pytest.raises(CatalogError) as error:
        model_spec("lama3-8b")
    assert str(error.value).startswith(
        f"model 'lama3-8b' is not in the catalog (did you mean 'llama3-8b'?); nearest of "
        f"{len(NAMES) + len(NETWORKS)}: llama3-8b, "
    )
    assert str(error.value).endswith(" (all of them: parsim catalog models)")


def test_unknown_name_like_no_other_is_refused_without_a_guess() -> None:
    with pytest.raises(CatalogError) as error:
        model_spec("zzz")
    told = f"model 'zzz' is not in the catalog; nearest of {len(NAMES) + len(NETWORKS)}: "
    assert str(error.value).startswith(told)


def test_case_is_no_matter() -> None:
    assert model_spec("GPT3-175B") is model_spec("gpt3-175b")
