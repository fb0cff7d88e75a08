"""Writes the models in `published/` with transformers, and what it finds for their gradients.

Run by hand where transformers is installed, in a folder of its own; the tests read what it wrote:

    python tests/executor/weights/make_published.py tests/executor/weights/published
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
import transformers as hf  # type: ignore[import-not-found]  # not in the environment
from safetensors.torch import save_file  # type: ignore[import-not-found]
from torch.nn import functional as F

ROWS, TOKENS = 3, 32
SIZES = {
    "vocab_size": 37,
    "num_hidden_layers": 2,
    "hidden_size": 16,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 40,
}
ONE_LAYER = {**SIZES, "num_hidden_layers": 1}  # transformers balances all layers at once
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 24,
}
LINEAR = {"rope_type": "linear", "factor": 2.0, "rope_theta": 1e3}
PLAIN = {"rope_type": "default", "rope_theta": 1e6}
YARN = {
    "rope_type": "yarn",
    "rope_theta": 300.0,
    "factor": 4.0,
    "original_max_position_embeddings": 16,
}
ROUTED = {"num_experts_per_tok": 2, "output_router_logits": True, "router_aux_loss_coef": 0.3}
QWEN3 = {"num_experts": 5, "moe_intermediate_size": 12, "head_dim": 8, "norm_topk_prob": False}


def models() -> dict[str, Any]:
    """One model for each family and kind of rotary positions."""
    llama, grouped = hf.LlamaConfig, {"num_key_value_heads": 1}
    whole = {"tie_word_embeddings": True, "attention_bias": True, "mlp_bias": True}
    gpt2 = hf.GPT2Config(
        vocab_size=37,
        n_layer=2,
        n_embd=16,
        n_head=2,
        n_inner=24,
        n_positions=40,
        layer_norm_epsilon=1e-3,
    )
    return {
        "gpt2": hf.GPT2LMHeadModel(gpt2),
        "bert": hf.BertForPreTraining(hf.BertConfig(**SIZES, layer_norm_eps=1e-3)),
        "llama3": hf.LlamaForCausalLM(
            llama(**SIZES, **grouped, rms_norm_eps=1e-3, rope_parameters=LLAMA3)
        ),
        "llama-yarn": hf.LlamaForCausalLM(llama(**SIZES, **whole, rope_parameters=YARN)),
        "llama-linear": hf.LlamaForCausalLM(
            llama(
                **SIZES, rope_parameters={"rope_type": "linear", "factor": 2.0, "rope_theta": 1e3}
            )
        ),
        "qwen2": hf.Qwen2ForCausalLM(hf.Qwen2Config(**SIZES, **grouped, rope_parameters=PLAIN)),
        **kin(grouped),
        "mixtral": hf.MixtralForCausalLM(
            hf.MixtralConfig(**ONE_LAYER, **grouped, **ROUTED, num_local_experts=4)
        ),
        "qwen3-moe": hf.Qwen3MoeForCausalLM(
            hf.Qwen3MoeConfig(**SIZES, **grouped, **ROUTED, **QWEN3, mlp_only_layers=[0])
        ),
    }


WIDE = {"head_dim": 8, "pad_token_id": 0}
NEAR = {"sliding_window": 7, "query_pre_attn_scalar": 5}
CAPS = {"attn_logit_softcapping": 1.5, "final_logit_softcapping": 2.5}
TURNS = {
    "full_attention": {"rope_type": "linear", "factor": 2.0, "rope_theta": 1e3},
    "sliding_attention": {"rope_type": "default", "rope_theta": 50.0},
}
PART = {"rope_type": "default", "rope_theta": 100.0, "partial_rotary_factor": 0.5}
CONSTANTS = {
    "embedding_multiplier": 3.0,
    "residual_multiplier": 0.4,
    "attention_multiplier": 0.2,
    "logits_scaling": 2.0,
}
FEW = {"bos_token_id": 1, "eos_token_id": 2}
ROUTED_GLM = {"n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 12}
SHARED_GLM = {"n_shared_experts": 1, "first_k_dense_replace": 1, "routed_scaling_factor": 1.5}
LAYERS3 = {**SIZES, "num_hidden_layers": 3, "num_attention_heads": 3, "hidden_size": 24}


def kin(grouped: dict[str, int]) -> dict[str, Any]:
    """Families that compute a thing or two in another way than Llama."""
    near, part = {**grouped, **WIDE, **NEAR}, {"rope_parameters": PART}
    glm, neox = {**grouped, **WIDE, **part}, {**SIZES, "hidden_act": "gelu", **part, **FEW}
    wide = {**SIZES, **grouped}
    opt = {name: size for name, size in SIZES.items() if name != "intermediate_size"}
    return {
        "phi3": hf.Phi3ForCausalLM(
            hf.Phi3Config(**wide, **part, **FEW, pad_token_id=0, sliding_window=9)
        ),
        "gemma": hf.GemmaForCausalLM(hf.GemmaConfig(**wide, **WIDE)),
        "gemma2": hf.Gemma2ForCausalLM(
            hf.Gemma2Config(**SIZES, **near, **CAPS, attn_implementation="eager")
        ),
        "gemma3": hf.Gemma3ForCausalLM(
            hf.Gemma3TextConfig(
                **LAYERS3,
                **near,
                rope_parameters=TURNS,
                layer_types=["sliding_attention"] * 2 + ["full_attention"],
            )
        ),
        "glm4": hf.Glm4ForCausalLM(hf.Glm4Config(**SIZES, **glm)),
        "glm4-moe": hf.Glm4MoeForCausalLM(
            hf.Glm4MoeConfig(**SIZES, **glm, **ROUTED_GLM, **SHARED_GLM)
        ),
        "granite": hf.GraniteForCausalLM(hf.GraniteConfig(**wide, **CONSTANTS)),
        "smollm3": hf.SmolLM3ForCausalLM(
            hf.SmolLM3Config(**wide, **FEW, pad_token_id=0, no_rope_layer_interval=2)
        ),
        "stablelm": hf.StableLmForCausalLM(
            hf.StableLmConfig(**wide, **part, use_qkv_bias=True, layer_norm_eps=1e-3)
        ),
        "nemotron": hf.NemotronForCausalLM(hf.NemotronConfig(**wide, **part)),
        "gpt-neox": hf.GPTNeoXForCausalLM(hf.GPTNeoXConfig(**neox)),
        "gpt-neox-serial": hf.GPTNeoXForCausalLM(
            hf.GPTNeoXConfig(**neox, use_parallel_residual=False)
        ),
        "starcoder2": hf.Starcoder2ForCausalLM(
            hf.Starcoder2Config(**wide, **FEW, sliding_window=9)
        ),
        "seed-oss": hf.SeedOssForCausalLM(
            hf.SeedOssConfig(**wide, head_dim=8, attention_bias=True, attention_out_bias=False)
        ),
        "opt": hf.OPTForCausalLM(hf.OPTConfig(**opt, ffn_dim=24, word_embed_proj_dim=16)),
        "bloom": hf.BloomForCausalLM(
            hf.BloomConfig(vocab_size=37, n_layer=2, hidden_size=24, n_head=3, seq_length=40)
        ),
        "roberta": hf.RobertaForMaskedLM(
            hf.RobertaConfig(**SIZES, type_vocab_size=1, layer_norm_eps=1e-3)
        ),
    }


def main(folder: Path) -> None:
    for name, model in models().items():
        torch.manual_seed(0)
        model.eval()  # without dropout
        with torch.no_grad():
            for parameter in model.parameters():
                noise = torch.randn_like(parameter)
                parameter.copy_(0.3 * noise if parameter.dim() > 1 else parameter + 0.1 * noise)
        model.save_pretrained(folder / name)
        # words 0 to 2 may be padding or ends, which have no gradient or no place
        tokens, targets = torch.randint(3, 37, (2, ROWS, TOKENS))
        out = model(input_ids=tokens)
        logits = out.prediction_logits if name == "bert" else out.logits
        loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten())
        balance = getattr(out, "aux_loss", None)
        total = loss if balance is None else loss + model.config.router_aux_loss_coef * balance
        total.backward()
        with torch.no_grad():  # saved as parameters, so that they get the published names
            for parameter in model.parameters():
                grad = parameter.grad
                parameter.copy_(torch.zeros_like(parameter) if grad is None else grad)
        model.save_pretrained(folder / "gradients" / name)
        expected = {"tokens": tokens, "targets": targets, "loss": loss.detach()[None]}
        save_file(expected, folder / name / "expected.safetensors")
        (folder / "gradients" / name / "model.safetensors").rename(
            folder / name / "gradients.safetensors"
        )
        (folder / name / "generation_config.json").unlink(missing_ok=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
