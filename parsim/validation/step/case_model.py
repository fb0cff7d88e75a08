"""The model that a measured run trained: by its sizes, and by what its name says of its family."""

from __future__ import annotations

from typing import Any

from parsim.cost.software import Software
from parsim.model.huggingface import FAMILY_FLAGS
from parsim.model.transformer import TransformerSpec, with_options
from parsim.validation.step.assumptions import GPT_VOCABULARY, VOCABULARY, Assumptions
from parsim.validation.step.known_models import known_mixture
from parsim.validation.step.measured_run import MeasuredRun
from parsim.validation.tables import RowSkipped


def model_family(run: MeasuredRun) -> str:
    """Family by the model's name; GPT where it says nothing else."""
    name = run.model.lower().replace(" ", "").replace("-", "").replace("_", "")
    for family in ("llama2", "llama3", "llama", "mistral", "nemotron", "mpt", "bert"):
        if family in name:
            return "llama3" if family == "llama" else family
    if run.n_kv_heads != run.n_heads:
        return "llama3"
    return "gpt"


def case_model(run: MeasuredRun, assumed: Assumptions, stack: Software) -> TransformerSpec:
    """Sizes and switches of the model; the stack says how its attention runs."""
    fused = stack.fused_attention if run.flash_attention is None else run.flash_attention
    if run.n_experts:
        return _mixture(run, fused)
    family = model_family(run)
    if family == "bert":
        raise RowSkipped("BERT rows have no stated head; not yet read from tables")
    llama = family in ("llama2", "llama3", "mistral")
    plain = family in ("mpt", "nemotron") or llama
    return TransformerSpec(
        name=run.model,
        num_layers=run.n_layers,
        hidden_size=run.hidden_size,
        num_attention_heads=run.n_heads,
        num_key_value_heads=run.n_kv_heads,
        head_dim=run.hidden_size // run.n_heads,
        ffn_hidden_size=run.ffn_hidden_size,
        vocab_size=run.vocab_size or VOCABULARY.get(family, GPT_VOCABULARY),
        seq_len=run.seq_len,
        positions=0 if plain else run.seq_len,
        rope=llama or family == "nemotron",
        rms_norm=llama,
        gated_mlp=llama,
        qkv_bias=not plain,
        projection_bias=not plain,
        mlp_bias=not plain,
        tied_embeddings=not (llama or family == "nemotron"),
        causal=True,
        fused_attention=fused,
        dropout=assumed.dropout,
    )


def _mixture(run: MeasuredRun, fused: bool) -> TransformerSpec:
    """A mixture of experts: the catalog's by its name, with the row's sizes, or Mixtral's kind.

    A known model with fewer layers is one trimmed for a benchmark; of its plain first layers one
    is left (SimuMax: "1 dense layer + MoE layers").
    """
    base = known_mixture(run.model)
    sizes: dict[str, Any] = {
        "name": run.model,
        "num_layers": run.n_layers,
        "hidden_size": run.hidden_size,
        "num_attention_heads": run.n_heads,
        "num_key_value_heads": run.n_kv_heads,
        "ffn_hidden_size": run.ffn_hidden_size,
        "vocab_size": run.vocab_size or VOCABULARY["llama2"],
        "seq_len": run.seq_len,
        "num_experts": run.n_experts,
        "experts_per_token": run.moe_topk,
        "expert_ffn_hidden_size": run.moe_ffn_hidden_size or run.ffn_hidden_size,
        "fused_attention": fused,
    }
    if base is None:
        head = run.hidden_size // run.n_heads
        return TransformerSpec(**{**FAMILY_FLAGS["mixtral"], **sizes, "head_dim": head})
    if run.n_layers < base.num_layers:
        sizes["dense_layers"] = min(base.dense_layers, 1)
    return with_options(base, **sizes)
