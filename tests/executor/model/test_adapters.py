"""LoRA adapters as modules: which parameters are trained, what they compute, what is merged."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

torch = pytest.importorskip("torch")

from executor.model.adapters import SCALE, begins_as_zero, is_adapters, merged_with  # noqa: E402
from executor.model.first_values import none_zero, seeded  # noqa: E402
from executor.model.module import build_model  # noqa: E402
from parsim.model.transformer import TransformerSpec, build_transformer  # noqa: E402
from parsim.plan import Plan  # noqa: E402
from parsim.plan.rules.executor.runnable import unrunnable  # noqa: E402
from tests.executor.workers.specs import DEEPSEEK, GPT, LLAMA, MIXTRAL  # noqa: E402

if TYPE_CHECKING:
    from torch import Tensor, nn

TOKENS = torch.arange(32).reshape(2, 16) % 60


def filled(name: str, shape: tuple[int, ...]) -> Tensor:
    """First values that leave no factor zero, so that all have gradients."""
    generator = torch.Generator().manual_seed(len(name) + sum(map(ord, name)))
    return torch.empty(shape).normal_(0.0, 0.1, generator=generator)


def loss_of(spec: TransformerSpec, stage: nn.Module) -> Tensor:
    logits = stage(TOKENS)[..., : spec.vocab_size]
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), TOKENS.flatten())


SAVED = ("embed_tokens", "lm_head")


@pytest.mark.parametrize("saved", [(), SAVED])
@pytest.mark.parametrize("targets", [(), ("linear_qkv",), ("linear_proj",)])
@pytest.mark.parametrize("spec", [GPT, LLAMA, MIXTRAL], ids=lambda spec: spec.name)
def test_trained_parameters_are_those_that_are_priced(
    spec: TransformerSpec, targets: tuple[str, ...], saved: tuple[str, ...]
) -> None:
    spec = replace(spec, lora_rank=4, lora_targets=targets, modules_to_save=saved)
    stage, model = build_model(spec), build_transformer(spec)
    named = dict(stage.named_parameters())
    trained = {name for name, parameter in named.items() if parameter.requires_grad}
    ends = {"embedding.token.weight", "head.logits.weight"} & named.keys() if saved else set()
    assert trained == {name for name in named if is_adapters(name)} | ends
    assert sum(named[name].numel() for name in trained) == model.updated.parameters
    assert sum(parameter.numel() for parameter in named.values()) == model.parameters


def test_maps_behind_an_activation_have_adapters_too() -> None:
    spec = replace(LLAMA, lora_rank=4, lora_targets=("linear_fc1", "linear_fc2"))
    names = {name for name, p in build_model(spec).named_parameters() if p.requires_grad}
    assert names == {
        f"layers.{layer}.mlp.{where}.weight"
        for layer in (0, 1)
        for where in (
            *("columns.a", "columns.b.fc1", "columns.b.gate"),
            *("fc2.adapter.a", "fc2.adapter.b"),
        )
    }


@pytest.mark.parametrize("spec", [GPT, LLAMA, MIXTRAL], ids=lambda spec: spec.name)
def test_training_starts_at_the_model_without_adapters(spec: TransformerSpec) -> None:
    adapted, plain = build_model(replace(spec, lora_rank=4)), build_model(spec)
    with torch.no_grad():
        assert torch.equal(adapted.eval()(TOKENS), plain.eval()(TOKENS))


def test_adapters_are_maps_of_low_rank_added_to_the_weights() -> None:
    """Loss and gradients of A and B equal those of a model whose weights hold (alpha / r) B A."""
    spec = replace(LLAMA, lora_rank=4)
    adapted, plain = build_model(spec, values=filled), build_model(LLAMA, values=filled)
    loss_of(spec, adapted).backward()
    for name, weight in plain.named_parameters():
        added = merged_with(adapted, name, lambda part: part.detach())
        if added is not None:
            weight.data += added
    loss = loss_of(LLAMA, plain)
    loss.backward()
    assert torch.allclose(loss_of(spec, adapted), loss, atol=1e-6)
    attention, merged = adapted.layers["0"].attention, plain.layers["0"].attention
    whole = torch.cat([getattr(merged, name).weight.grad for name in "qkv"])
    a, second = attention.columns.a.weight, [attention.columns.b[name].weight for name in "qkv"]
    by_b = torch.cat([factor.grad for factor in second])
    assert torch.allclose(by_b, SCALE * whole @ a.T, atol=1e-6)
    assert torch.allclose(a.grad, SCALE * torch.cat(second).T @ whole, atol=1e-6)
    factors, rows = attention.projection.adapter, merged.projection.weight.grad
    assert torch.allclose(factors.b.weight.grad, SCALE * rows @ factors.a.weight.T, atol=1e-6)
    assert all(p.grad is None for p in adapted.parameters() if not p.requires_grad)


@pytest.mark.parametrize("spec", [GPT, LLAMA], ids=lambda spec: spec.name)
def test_saved_modules_have_the_gradients_of_whole_training(spec: TransformerSpec) -> None:
    """While second factors are zero the model is the plain one, and so are these gradients."""
    values = seeded(0)
    saved = replace(spec, lora_rank=4, modules_to_save=SAVED)
    adapted, plain = build_model(saved, values=values), build_model(spec, values=values)
    for each, stage in ((saved, adapted), (spec, plain)):
        loss_of(each, stage).backward()
    whole = dict(plain.named_parameters())
    ends = {name: p for name, p in adapted.named_parameters() if name.split(".")[0] != "layers"}
    assert any(p.requires_grad for p in ends.values())
    for name, parameter in ends.items():
        if parameter.requires_grad:
            assert torch.allclose(parameter.grad, whole[name].grad, atol=1e-6)
        else:
            assert parameter.grad is None


def test_what_is_verified_has_gradients_of_all_factors() -> None:
    """Where second factors are zero, as training begins, first ones have none."""
    spec = replace(LLAMA, lora_rank=4)
    for values, all_of_them in ((seeded(0), False), (none_zero(seeded(0)), True)):
        stage = build_model(spec, values=values)
        loss_of(spec, stage).backward()
        named = stage.named_parameters()
        reached = {name for name, p in named if p.requires_grad and bool(p.grad.any())}
        trained = {name for name, p in stage.named_parameters() if p.requires_grad}
        seconds = {name for name in trained if begins_as_zero(name)}
        assert reached == (trained if all_of_them else seconds)
    plain = {name: p for name, p in build_model(LLAMA, seed=0).named_parameters()}
    drawn = build_model(LLAMA, values=none_zero(seeded(0))).named_parameters()
    assert all(torch.equal(p, plain[name]) for name, p in drawn)


def test_what_has_no_adapter_is_merged_with_nothing() -> None:
    stage = build_model(replace(LLAMA, lora_rank=4, lora_targets=("linear_qkv",)))
    names = {name for name, _ in build_model(LLAMA).named_parameters()}
    merged = {name for name in names if merged_with(stage, name, torch.detach) is not None}
    assert merged == {f"layers.{i}.attention.{part}.weight" for i in (0, 1) for part in "qkv"}


def test_adapters_of_latent_attention_are_refused() -> None:
    model = build_transformer(replace(DEEPSEEK, lora_rank=4))
    assert re.search("lora_rank beside kv_lora_rank", unrunnable(Plan(), model) or "")


def test_backwards_in_two_are_run() -> None:
    plan = Plan(pp=2, schedule="zb_h1", num_microbatches=4)
    assert unrunnable(plan, build_transformer(replace(LLAMA, lora_rank=4))) is None
