"""Latent attention beside DeepSeek's equations, written out with complex numbers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from executor.model.attention.latent import EPSILON, LatentAttention  # noqa: E402
from executor.model.attention.rotary import Rotary  # noqa: E402
from executor.model.module import build_model, check_buildable  # noqa: E402
from executor.weights.names import theirs  # noqa: E402
from executor.weights.published import parts_of  # noqa: E402
from parsim.errors import ModelError  # noqa: E402
from parsim.model.config.writer import config_from_spec  # noqa: E402
from parsim.model.huggingface import spec_from_config  # noqa: E402
from parsim.model.spec import TransformerSpec  # noqa: E402
from parsim.plan import Recompute  # noqa: E402
from tests.executor.workers.specs import SPECS  # noqa: E402

TOKENS = 16


def written_out(spec: TransformerSpec, x: Any, weights: dict[str, Any]) -> Any:
    """Equations 37 to 47 of arXiv:2405.04434; pairs of neighbouring rotary values are complex."""
    heads, rope, latent = spec.num_attention_heads, spec.rope_head_dim, spec.kv_lora_rank
    plain, value = spec.head_dim - rope, spec.value_width

    def normed(low: Any, weight: Any) -> Any:
        return low / (low.square().mean(-1, keepdim=True) + EPSILON).sqrt() * weight

    def turned(pairs: Any) -> Any:
        numbers = torch.view_as_complex(pairs.unflatten(-1, (-1, 2)).contiguous())
        rates = spec.rope_theta ** -(torch.arange(0, rope, 2, dtype=x.dtype) / rope)
        angles = torch.outer(torch.arange(TOKENS, dtype=x.dtype), rates)
        turns = torch.polar(torch.ones_like(angles), angles)
        return torch.view_as_real(numbers * turns).flatten(-2)

    low = x
    if spec.q_lora_rank:
        low = normed(x @ weights["q_down.weight"].t(), weights["q_norm.weight"])
    q = (low @ weights["q_up.weight"].t()).unflatten(-1, (heads, spec.head_dim))
    both = x @ weights["kv_down.weight"].t()
    up = normed(both[..., :latent], weights["kv_norm.weight"]) @ weights["kv_up.weight"].t()
    up = up.unflatten(-1, (heads, plain + value))
    scores = torch.einsum("bqad,bkad->baqk", q[..., :plain], up[..., :plain])
    rotary = turned(q[..., plain:].transpose(1, 2))
    shared = turned(both[..., latent:])
    scores = scores + torch.einsum("baqr,bkr->baqk", rotary, shared)
    hidden = torch.ones(TOKENS, TOKENS, dtype=torch.bool).triu(1)
    shares = (scores / spec.head_dim**0.5).masked_fill(hidden, -torch.inf).softmax(-1)
    mixed = torch.einsum("baqk,bkav->bqav", shares, up[..., plain:])
    return mixed.flatten(2) @ weights["projection.weight"].t()


@pytest.mark.parametrize("name", ["latent", "latent, queries whole"])
@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("recompute", [Recompute.NONE, Recompute.SELECTIVE])
def test_output_and_gradients_are_those_of_the_equations(
    name: str, fused: bool, recompute: Recompute
) -> None:
    spec = replace(SPECS[name], fused_attention=fused)
    ours = LatentAttention(spec, rotary=Rotary.of(spec), recompute=recompute).double()
    generator = torch.Generator().manual_seed(3)
    for parameter in ours.parameters():
        values = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
        parameter.data.copy_(values / parameter.shape[-1] ** 0.5)
    x = torch.randn(2, TOKENS, spec.hidden_size, generator=generator, dtype=torch.float64)
    x.requires_grad_(True)
    grad = torch.randn(x.shape, generator=generator, dtype=torch.float64)
    weights = dict(ours.named_parameters())
    result, wanted = ours(x), written_out(spec, x, weights)
    # angles are taken in fp32
    torch.testing.assert_close(result, wanted, rtol=1e-5, atol=1e-5)
    among = [x, *weights.values()]
    ours_back = torch.autograd.grad(result, among, grad)
    for entry, other in zip(ours_back, torch.autograd.grad(wanted, among, grad), strict=True):
        torch.testing.assert_close(entry, other, rtol=1e-5, atol=1e-5)


def test_a_model_has_the_parameters_that_are_counted() -> None:
    from parsim.model.transformer import build_transformer

    for name in ("latent", "latent, queries whole"):
        model = build_model(SPECS[name], device="meta")
        counted = sum(parameter.numel() for parameter in model.parameters())
        assert counted == build_transformer(SPECS[name]).parameters


def test_what_latent_attention_cannot_do() -> None:
    stretched = replace(
        SPECS["latent"], rope_scaling="yarn", rope_factor=4.0, rope_original_positions=8
    )
    with pytest.raises(ModelError, match="rope_scaling=yarn with latent attention"):
        check_buildable(stretched)
    with pytest.raises(ModelError, match="latent attention with dropout"):
        check_buildable(replace(SPECS["latent"], dropout=True))
    with pytest.raises(ModelError, match="rope_head_dim=3 is odd"):
        build_model(replace(SPECS["latent"], rope_head_dim=3))


@pytest.mark.parametrize("name", ["deepseek", "deepseek v2"])
def test_published_names_and_configuration(name: str) -> None:
    """Every parameter has a name of its own, and the configuration says the same model again."""
    spec = SPECS[name]
    config = config_from_spec(spec)
    second = name == "deepseek v2"
    assert config["model_type"] == ("deepseek_v2" if second else "deepseek_v3")
    again = spec_from_config(config, name=spec.name, seq_len=spec.seq_len)
    assert replace(again, padded_vocab_size=spec.padded_vocab_size) == spec
    model = build_model(spec, device="meta")
    ours = {n: tuple(p.shape) for n, p in model.named_parameters()}
    parts = [part for n, shape in ours.items() for part, _ in parts_of(n, shape)]
    names = [theirs(spec, part).name for part in parts]
    assert len(set(names)) == len(names)
    layer = "model.layers.1."
    expected = {
        f"{layer}self_attn.kv_a_proj_with_mqa.weight",
        f"{layer}self_attn.kv_a_layernorm.weight",
        f"{layer}self_attn.kv_b_proj.weight",
        f"{layer}self_attn.{'q_proj' if second else 'q_b_proj'}.weight",
        f"{layer}mlp.gate.weight",
        f"{layer}mlp.experts.7.down_proj.weight",
        f"{layer}mlp.shared_experts.up_proj.weight",
        "model.layers.0.mlp.gate_proj.weight",
    }
    assert expected <= set(names)
    assert (f"{layer}mlp.gate.e_score_correction_bias" in names) is not second
