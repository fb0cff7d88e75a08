"""Peak memory of steps on CPU ranks beside its prediction: bytes do not hang on the machine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.executor.launch import launch

pytest.importorskip("torch")

WORKER = Path(__file__).parents[1] / "workers" / "memory.py"
SCENARIO = """
description: a small Llama on two CPU ranks
model: {name: llama3-8b, num_layers: 4, hidden_size: 256, num_attention_heads: 4,
        num_key_value_heads: 2, head_dim: 64, ffn_hidden_size: 512, vocab_size: 512, seq_len: 64}
cluster: {system: cpu, nodes: 1, devices_per_node: 2}
software: executor-cpu
training: {global_batch_size: 8, precision: fp32}
plan: {pp: 2, microbatch_size: 1, schedule: 1f1b}
"""
GPT = {
    "model.gated_mlp": "false",
    "model.rms_norm": "false",
    "model.mlp_bias": "true",
    "model.ffn_hidden_size": "1024",
}
MIXTURE = {
    "model.num_experts": "4",
    "model.experts_per_token": "2",
    "model.expert_ffn_hidden_size": "256",
}
DATA = {"plan.pp": "1"}
SPLIT = {"plan.tp": "2", "plan.sequence_parallel": "true"}
LATENT = {
    "model.num_key_value_heads": "4",
    "model.kv_lora_rank": "64",
    "model.q_lora_rank": "96",
    "model.rope_head_dim": "16",
    "model.value_head_dim": "64",
}
DROPOUT = {"model.dropout": "true"}
WORDS = {"model.vocab_size": "4096"}
LONG = {
    **DATA,
    "plan.cp": "2",
    "plan.microbatch_size": "2",
    "model.seq_len": "512",
    "model.num_key_value_heads": "4",
    "model.ffn_hidden_size": "256",
}
CAST = {"training.precision": "bf16_amp", "model.num_key_value_heads": "4"}
MANY = {"training.global_batch_size": "32"}
TOKENS = {
    "plan.microbatch_size": "4",
    "model.seq_len": "128",
    "training.global_batch_size": "16",
}
ADAPTERS = {"model.lora_rank": "8"}
SAVED = {"model.modules_to_save": "[embed_tokens, lm_head]"}
CASES: dict[str, dict[str, str]] = {
    "adapters": {**DATA, **ADAPTERS},
    "adapters, many tokens": {**DATA, **TOKENS, **ADAPTERS},
    "adapters, layer norms": {**DATA, **GPT, **TOKENS, **ADAPTERS},
    "adapters, autocast": {**DATA, **CAST, **TOKENS, **ADAPTERS},
    "adapters, 16 bit": {**DATA, **TOKENS, **ADAPTERS, "training.precision": "bf16"},
    "adapters, recomputed": {**ADAPTERS, "plan.recompute": "full", "plan.microbatch_size": "4"},
    "adapters, 1f1b": {**TOKENS, **ADAPTERS},
    "adapters, zero-bubble": {**TOKENS, **ADAPTERS, "plan.schedule": "zb_1p"},
    "adapters, zero-bubble, 16 bit": {
        **TOKENS,
        **ADAPTERS,
        "plan.schedule": "zb_1p",
        "training.precision": "bf16",
    },
    "adapters, zero-bubble V": {**MANY, **ADAPTERS, "plan.schedule": "zb_v"},
    "adapters, zero-bubble V, layer norms": {
        **GPT,
        **TOKENS,
        **ADAPTERS,
        "plan.schedule": "zb_v",
    },
    "adapters, zero-bubble V, recomputed": {
        **TOKENS,
        **ADAPTERS,
        "plan.schedule": "zb_v",
        "plan.recompute": "full",
    },
    "adapters of some, zero-bubble V": {
        **TOKENS,
        **ADAPTERS,
        "plan.schedule": "zb_v",
        "model.lora_targets": "[linear_proj, linear_fc1]",
    },
    "adapters beside queries alone, 1f1b": {
        **TOKENS,
        **ADAPTERS,
        "model.lora_targets": "[linear_qkv]",
    },
    "adapters, frozen experts": {**TOKENS, **ADAPTERS, **MIXTURE},
    "adapters, frozen experts, zero-bubble": {
        **TOKENS,
        **ADAPTERS,
        **MIXTURE,
        "plan.schedule": "zb_1p",
    },
    "adapters and ends": {**DATA, **TOKENS, **ADAPTERS, **SAVED},
    "adapters and ends, ZeRO-3": {**DATA, **WORDS, **ADAPTERS, **SAVED, "plan.zero_stage": "3"},
    "adapters and ends, 1f1b": {**TOKENS, **ADAPTERS, **SAVED},
    "adapters, GPipe": {**MANY, **ADAPTERS, "plan.schedule": "gpipe"},
    "adapters, ZeRO-1": {**DATA, **ADAPTERS, "plan.zero_stage": "1"},
    "adapters, ZeRO-2, many words": {**DATA, **WORDS, **ADAPTERS, "plan.zero_stage": "2"},
    "adapters, ZeRO-3, many words": {**DATA, **WORDS, **ADAPTERS, "plan.zero_stage": "3"},
    "adapters, tensor parallel": {
        **DATA,
        **ADAPTERS,
        "plan.tp": "2",
        "plan.microbatch_size": "4",
    },
    "adapters, sequence parallel": {**DATA, **SPLIT, **TOKENS, **ADAPTERS},
    "adapters beside queries alone": {
        **DATA,
        **TOKENS,
        **ADAPTERS,
        "model.lora_targets": "[linear_qkv]",
    },
    "autocast": {**DATA, **CAST},
    "autocast, many tokens": {**DATA, **CAST, "plan.microbatch_size": "4"},
    "autocast, 1f1b": CAST,
    "autocast, recomputed": {**CAST, "plan.recompute": "full"},
    "autocast, zero-bubble": {**CAST, "plan.schedule": "zb_1p"},
    "autocast, layer norms": {**CAST, **GPT},
    "1f1b": {},
    "zero-bubble": {"plan.schedule": "zb_1p"},
    "zero-bubble, layer norms": {"plan.schedule": "zb_1p", **GPT},
    "zero-bubble V": {"plan.schedule": "zb_v", "plan.microbatch_size": "2"},
    "1f1b, many micro-batches": MANY,
    "GPipe, many micro-batches": {**MANY, "plan.schedule": "gpipe"},
    "interleaved, many micro-batches": {**MANY, "plan.schedule": "interleaved_1f1b", "plan.v": "2"},
    "looped, many micro-batches": {**MANY, "plan.schedule": "looped_bfs", "plan.v": "2"},
    "zero-bubble, many micro-batches": {**MANY, "plan.schedule": "zb_1p"},
    "zero-bubble V, many micro-batches": {**MANY, "plan.schedule": "zb_v"},
    "zero-bubble, recomputed": {"plan.schedule": "zb_1p", "plan.recompute": "full"},
    "zero-bubble V, recomputed": {"plan.schedule": "zb_v", "plan.recompute": "full"},
    "zero-bubble V, many tokens": {**TOKENS, "plan.schedule": "zb_v"},
    "zero-bubble, 16 bit": {"plan.schedule": "zb_1p", "training.precision": "bf16"},
    "16 bit, many tokens": {**TOKENS, "training.precision": "bf16"},
    "two copies of the model": {"plan.schedule": "chimera"},
    "two copies, backwards in two": {"plan.schedule": "dualpipe"},
    "recomputed": {"plan.recompute": "full", "plan.microbatch_size": "2"},
    "recomputed, one micro-batch": {**DATA, "plan.recompute": "full", "plan.microbatch_size": "4"},
    "keys and values gathered": {**LONG, "plan.cp_comm_type": "all_gather"},
    "heads exchanged": {**LONG, "plan.cp_comm_type": "a2a"},
    "replicas": DATA,
    "ZeRO-1": {**DATA, "plan.zero_stage": "1"},
    "ZeRO-1 of a mixture": {**DATA, **MIXTURE, "plan.zero_stage": "1"},
    "sequence parallel, latent attention": {**DATA, **SPLIT, **LATENT, "plan.microbatch_size": "4"},
    "dropout, shared keys": {**DROPOUT, "model.seq_len": "128"},
    "ZeRO-2, many words": {**DATA, **WORDS, "plan.zero_stage": "2"},
    "ZeRO-2 of a mixture": {**DATA, **MIXTURE, "plan.zero_stage": "2"},
    "ZeRO-3, many words": {**DATA, **WORDS, "plan.zero_stage": "3"},
    "ZeRO-3 of experts apart": {**DATA, **MIXTURE, "plan.zero_stage": "3", "plan.ep": "2"},
}


@pytest.fixture(scope="module")
def peaks(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("memory")
    scenario, cases = folder / "scenario.yaml", folder / "cases.json"
    scenario.write_text(SCENARIO)
    cases.write_text(json.dumps(CASES))
    by_rank = launch(WORKER, str(scenario), str(cases), ranks=2, folder=folder, timeout=900.0)
    first: dict[str, Any] = by_rank[0]
    return first


@pytest.mark.distributed
@pytest.mark.parametrize("name", CASES)
def test_the_highest_peak_is_predicted_within_three_per_cent(
    peaks: dict[str, Any], name: str
) -> None:
    highest = max(peaks[name]["predicted"])
    assert highest == pytest.approx(max(peaks[name]["measured"]), rel=0.03)
