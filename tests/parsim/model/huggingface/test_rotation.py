"""Rotary positions as files have them, and norms of queries and keys."""

from __future__ import annotations

import pytest

from parsim.errors import ModelError
from parsim.model.config.writer import config_from_spec
from tests.parsim.model.huggingface.read_configs import LLAMA, spec


@pytest.mark.parametrize(
    ("changes", "fields"),
    [
        ({}, ("none", 10_000.0, 1.0)),
        ({"rope_theta": 500000}, ("none", 500_000.0, 1.0)),
        ({"rope_scaling": {"type": "linear", "factor": 4}}, ("linear", 10_000.0, 4.0)),
        (
            {"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e6, "factor": 2.0}},
            ("yarn", 1e6, 2.0),
        ),
        ({"rope_parameters": {"rope_type": "default", "rope_theta": 1e6}}, ("none", 1e6, 1.0)),
    ],
)
def test_rotation_as_old_and_new_files_have_it(
    changes: dict[str, object], fields: tuple[str, float, float]
) -> None:
    read = spec(LLAMA, **changes)
    assert (read.rope_scaling, read.rope_theta, read.rope_factor) == fields


def test_an_unknown_scaling_is_refused() -> None:
    with pytest.raises(ModelError, match="rope_type=longrope in a llama config is not supported"):
        spec(LLAMA, rope_scaling={"rope_type": "longrope"})


def test_a_scaling_that_is_no_mapping_is_refused() -> None:
    with pytest.raises(ModelError, match="rope_scaling=3 in a llama config must be a mapping"):
        spec(LLAMA, rope_scaling=3)


def test_qwen3_normalises_queries_and_keys_and_has_no_biases() -> None:
    qwen3 = LLAMA | {"model_type": "qwen3"}
    read = spec(qwen3)
    assert (read.qk_norm, read.qkv_bias, read.projection_bias) == (True, False, False)
    assert (read.num_key_value_heads, read.head_dim) == (32, 128)
    assert spec(qwen3, attention_bias=True).projection_bias
    written = config_from_spec(read)
    assert (written["model_type"], written["architectures"]) == ("qwen3", ["Qwen3ForCausalLM"])
    assert spec(written) == read
