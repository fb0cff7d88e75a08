"""The model of a measured run: sizes of its row, and what its family or the catalog adds."""

from __future__ import annotations

from typing import Any

from parsim.cost.software import Software
from parsim.model.transformer import TransformerSpec, with_options
from parsim.validation.step.assumptions import Assumptions
from parsim.validation.step.known_models import known_model
from parsim.validation.step.measured_run import MeasuredRun
from parsim.validation.step.model_family import MIXTURE, has_gate, model_family


def case_model(run: MeasuredRun, assumed: Assumptions, stack: Software) -> TransformerSpec:
    """Sizes and switches of the model; the stack says how its attention runs."""
    base = known_model(run.model)
    sizes = {
        "name": run.model,
        "num_layers": run.n_layers,
        "hidden_size": run.hidden_size,
        "num_attention_heads": run.n_heads,
        "num_key_value_heads": run.n_kv_heads,
        "ffn_hidden_size": run.ffn_hidden_size,
        "vocab_size": run.vocab_size,
        "seq_len": run.seq_len,
        "fused_attention": stack.fused_attention
        if run.flash_attention is None
        else run.flash_attention,
        "dropout": _drops(assumed, base) if run.dropout is None else run.dropout,
        "sample_length": run.sample_length or 0,
        "lora_rank": run.lora_rank,
        "lora_targets": run.lora_targets,
        "modules_to_save": run.modules_to_save,
        **(_experts(run) if run.n_experts else {}),
    }
    return _of_family(run, sizes) if base is None else _of_catalog(run, base, sizes)


def _drops(assumed: Assumptions, base: TransformerSpec | None) -> bool:
    """Whether a silent run drops values: as its stack does, but for models that never do."""
    return assumed.dropout and (base is None or base.dropout)


def _experts(run: MeasuredRun) -> dict[str, Any]:
    return {
        "num_experts": run.n_experts,
        "experts_per_token": run.moe_topk,
        "expert_ffn_hidden_size": run.moe_ffn_hidden_size or run.ffn_hidden_size,
    }


def _of_family(run: MeasuredRun, sizes: dict[str, Any]) -> TransformerSpec:
    """A model that the catalog does not have; a mixture of experts is one of Mixtral's kind."""
    later = has_gate(run.hidden_size, run.ffn_hidden_size)
    family = MIXTURE if run.n_experts else model_family(run.model, later=later)
    return TransformerSpec(
        **{
            **family.flags,
            **sizes,
            "head_dim": run.head_dim or run.hidden_size // run.n_heads,
            "positions": run.seq_len if family.positions else 0,
        }
    )


def _of_catalog(run: MeasuredRun, base: TransformerSpec, sizes: dict[str, Any]) -> TransformerSpec:
    """The catalog's model with the row's sizes, and its family's head where it has none.

    A mixture with fewer layers is one trimmed for a benchmark; of its plain first layers one is
    left (SimuMax: "1 dense layer + MoE layers").
    """
    even = base.head_dim * base.num_attention_heads == base.hidden_size
    changes = {
        **sizes,
        "padded_vocab_size": None,
        "head_dim": run.hidden_size // run.n_heads if even else base.head_dim,
        "positions": run.seq_len if base.positions else 0,
    }
    if base.head == "none":
        changes["head"] = model_family(run.model).flags["head"]
    if run.n_layers < base.num_layers:
        changes["dense_layers"] = min(base.dense_layers, 1)
    return with_options(base, **changes)
