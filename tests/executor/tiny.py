"""Small models with all switches of their families, for the tests of the torch modules."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from parsim.model.reader import model_spec
from parsim.model.transformer import TransformerSpec, with_options

torch = pytest.importorskip("torch")

from executor.model.loss import cross_entropy  # noqa: E402
from executor.model.module import build_stage  # noqa: E402
from executor.model.stage import Stage  # noqa: E402

if TYPE_CHECKING:
    from torch import Tensor

torch.set_num_threads(1)  # the same sums in the same order, whatever else the machine does

META = torch.device("meta")
TINY = {
    "num_layers": 4,
    "hidden_size": 24,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "head_dim": 6,
    "ffn_hidden_size": 40,
    "vocab_size": 97,
    "seq_len": 16,
    "dropout": False,
}
EXPERTS = {"num_experts": 6, "experts_per_token": 2, "expert_ffn_hidden_size": 20}


def tiny(name: str, **changes: object) -> TransformerSpec:
    """A catalog model with all switches of its family and few of everything."""
    spec = model_spec(name)
    shared = spec.num_attention_heads != spec.num_key_value_heads
    return with_options(
        spec,
        **{
            **TINY,
            "positions": 20 if spec.positions else 0,
            "padded_vocab_size": 104 if spec.padded_vocab_size else None,
            "num_key_value_heads": 2 if shared else 4,
            "head": "mlm" if spec.post_norm else "lm",
            **changes,
        },
    )


FAMILIES = {
    "gpt2": tiny("gpt2"),
    "gpt2-untied": tiny("gpt2", tied_embeddings=False),
    "gpt-padded": tiny("gpt-1.7b"),
    "llama2": tiny("llama2-7b"),
    "llama3-grouped": tiny("llama3-8b"),
    "llama-tied": tiny("llama3-8b", tied_embeddings=True),
    "qwen2-bias": tiny("qwen2-7b"),
    "wide-heads": tiny("llama2-7b", head_dim=10),
    "bert": tiny("bert-base"),
    "bert-no-pooler": tiny("bert-base", pooler=False),
    "bert-no-head": tiny("bert-base", head="none"),
    "mixtral": tiny("mixtral-8x7b", **EXPERTS),
    "qwen3-moe": tiny("qwen3-30b-a3b", **EXPERTS),
    "experts-with-all": tiny(
        "gpt2", **EXPERTS, shared_expert_ffn_hidden_size=12, dense_layers=1, expert_every=2
    ),
}
TRAINED = {name: spec for name, spec in FAMILIES.items() if spec.head != "none"}

each_family = pytest.mark.parametrize("spec", FAMILIES.values(), ids=FAMILIES)
each_trained = pytest.mark.parametrize("spec", TRAINED.values(), ids=TRAINED)


def draw(spec: TransformerSpec, rows: int = 3) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(7)
    ids = torch.randint(spec.vocab_size, (rows, spec.seq_len + 1), generator=generator)
    return ids[:, :-1], ids[:, 1:]


def gradients(stage: Stage, tokens: Tensor, targets: Tensor) -> dict[str, Tensor]:
    cross_entropy(stage(tokens), targets).backward()
    return {name: p.grad for name, p in stage.named_parameters()}


def cut(spec: TransformerSpec, *sizes: int, seed: int = 0) -> list[Stage]:
    starts = [sum(sizes[:i]) for i in range(len(sizes))]
    return [
        build_stage(
            spec,
            first_layer=start,
            num_layers=size,
            embedding=start == 0,
            head=start + size == spec.num_layers,
            seed=seed,
        )
        for start, size in zip(starts, sizes, strict=True)
    ]
