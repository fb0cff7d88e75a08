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
        "mixtral": hf.MixtralForCausalLM(
            hf.MixtralConfig(**ONE_LAYER, **grouped, **ROUTED, num_local_experts=4)
        ),
        "qwen3-moe": hf.Qwen3MoeForCausalLM(
            hf.Qwen3MoeConfig(**SIZES, **grouped, **ROUTED, **QWEN3, mlp_only_layers=[0])
        ),
    }


def main(folder: Path) -> None:
    torch.manual_seed(0)
    for name, model in models().items():
        model.eval()  # without dropout
        with torch.no_grad():
            for parameter in model.parameters():
                noise = torch.randn_like(parameter)
                parameter.copy_(0.3 * noise if parameter.dim() > 1 else parameter + 0.1 * noise)
        model.save_pretrained(folder / name)
        # BERT gives its word 0, padding, no gradient
        tokens, targets = torch.randint(1, 37, (2, ROWS, TOKENS))
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
