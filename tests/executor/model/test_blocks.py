"""What the modules compute: attention, positions, recomputation, dropout."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from parsim.errors import ModelError
from parsim.model.transformer import TransformerSpec
from parsim.plan import Recompute

torch = pytest.importorskip("torch")

from executor.model.attention.rotary import Rotary  # noqa: E402
from executor.model.module import build_model, seed_dropout  # noqa: E402
from tests.executor.tiny import FAMILIES, draw, each_trained, gradients, tiny  # noqa: E402

if TYPE_CHECKING:
    from torch import Tensor


@each_trained
def test_fused_attention_equals_unfused(spec: TransformerSpec) -> None:
    tokens, targets = draw(spec)
    fused, plain = build_model(spec), build_model(replace(spec, fused_attention=False))
    assert torch.allclose(fused(tokens), plain(tokens), rtol=0, atol=1e-5)
    a, b = gradients(fused, tokens, targets), gradients(plain, tokens, targets)
    assert all(torch.allclose(a[name], b[name], rtol=0, atol=1e-5) for name in a)


@pytest.mark.parametrize("window", [1, 37, 128, 200])
@pytest.mark.parametrize("name", ["llama2-7b", "llama3-8b", "gpt2"])
def test_a_window_in_tiles_equals_a_masked_square(name: str, window: int) -> None:
    """Longer than two tiles of queries, of which each sees other keys."""
    spec = tiny(name, seq_len=300, num_layers=2, positions=300, window=window, full_every=2)
    tokens, targets = draw(spec)
    tiles, square = build_model(spec), build_model(replace(spec, fused_attention=False))
    assert torch.allclose(tiles(tokens), square(tokens), rtol=0, atol=1e-5)
    a, b = gradients(tiles, tokens, targets), gradients(square, tokens, targets)
    assert all(torch.allclose(a[name], b[name], rtol=0, atol=1e-5) for name in a)
    whole = build_model(replace(spec, window=0))(tokens)
    assert torch.allclose(tiles(tokens)[:, :window], whole[:, :window], rtol=0, atol=1e-5)
    assert not torch.allclose(tiles(tokens)[:, window:], whole[:, window:], rtol=0, atol=1e-4)


def test_a_window_ends_what_a_token_sees() -> None:
    spec = tiny("llama2-7b", seq_len=160, num_layers=1, window=20)
    stage = build_model(spec)
    tokens, _ = draw(spec)
    changed = tokens.clone()
    changed[:, 100] = (changed[:, 100] + 1) % spec.vocab_size
    differs = (stage(tokens) - stage(changed)).abs().amax(dim=(0, 2)) > 1e-7
    assert differs.nonzero().flatten().tolist() == list(range(100, 120))


def share_of_heads(spec: TransformerSpec, rank: int, tp: int) -> Any:
    """The attention of a tensor-parallel rank: rows of q, k, v and columns of the projection."""
    attention = build_model(spec, seed=2).layers["0"].attention
    for linear in (attention.q, attention.k, attention.v):
        linear.weight = torch.nn.Parameter(linear.weight.chunk(tp, dim=0)[rank])
        if linear.bias is not None:
            linear.bias = torch.nn.Parameter(linear.bias.chunk(tp)[rank])
    columns = attention.projection.weight.chunk(tp, dim=1)[rank]
    attention.projection.weight = torch.nn.Parameter(columns)
    return attention


@pytest.mark.parametrize("name", ["gpt2", "llama3-8b", "qwen2-7b", "bert-base"])
def test_shares_of_the_heads_sum_to_the_whole_attention(name: str) -> None:
    spec = tiny(name)  # its projection biases start at zero
    x = torch.randn(2, 16, 24, generator=torch.Generator().manual_seed(0))
    whole = share_of_heads(spec, 0, 1)(x)
    parts = [share_of_heads(spec, rank, 2)(x) for rank in range(2)]
    assert torch.allclose(sum(parts), whole, rtol=0, atol=1e-6)
    assert whole.abs().max() > 1e-4


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("name", ["gpt2", "llama3-8b", "bert-base"])
def test_only_models_that_are_not_causal_see_later_tokens(name: str, fused: bool) -> None:
    spec = tiny(name, fused_attention=fused, pooler=False)
    stage = build_model(spec)
    tokens, _ = draw(spec)
    changed = tokens.clone()
    changed[:, -1] = (changed[:, -1] + 1) % spec.vocab_size
    same = torch.allclose(stage(tokens)[:, :-1], stage(changed)[:, :-1], rtol=0, atol=1e-7)
    assert same == spec.causal


@pytest.mark.parametrize("name", ["gpt2", "llama3-8b", "bert-base"])
def test_order_of_tokens_matters(name: str) -> None:
    # one layer without positions would see a set: the last output would stay the same
    spec = tiny(name, num_layers=1)
    stage = build_model(spec)
    tokens, _ = draw(spec)
    swapped = tokens.clone()
    swapped[:, [0, 1]] = tokens[:, [1, 0]]
    assert not torch.allclose(stage(tokens)[:, -1], stage(swapped)[:, -1], rtol=0, atol=1e-6)


def test_rotary_products_depend_on_the_distance_alone() -> None:
    x = torch.randn(2, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    q, k = (row.expand(1, 1, 12, 8) for row in x)
    rotary = Rotary.of(tiny("llama2-7b", head_dim=8))
    scores = (rotary.rotate(q) @ rotary.rotate(k).transpose(-1, -2))[0, 0]
    for distance in (0, 1, 5):
        diagonal = scores.diagonal(distance)
        assert torch.allclose(diagonal, diagonal[:1].expand_as(diagonal), atol=1e-5)
    assert (scores[0, 0] - scores[0, 5]).abs() > 1e-3


def test_rotary_serves_longer_texts_and_other_precisions_when_asked() -> None:
    rotary, x = Rotary.of(tiny("llama2-7b")), torch.ones(1, 1, 9, 6)
    short = rotary.rotate(x[:, :, :4])
    assert torch.equal(rotary.rotate(x)[:, :, :4], short)
    assert torch.equal(rotary.rotate(x[:, :, :4]), short)
    assert rotary.rotate(x.bfloat16()).dtype == torch.bfloat16


def test_the_pooler_is_computed_but_changes_no_output() -> None:
    tokens, _ = draw(FAMILIES["bert"])
    pooled, plain = build_model(FAMILIES["bert"]), build_model(FAMILIES["bert-no-pooler"])
    assert torch.equal(pooled(tokens), plain(tokens))


def test_an_odd_head_size_cannot_be_rotated() -> None:
    with pytest.raises(ModelError, match="head_dim=7 is odd"):
        build_model(tiny("llama2-7b", head_dim=7))


@pytest.mark.parametrize("recompute", [Recompute.SELECTIVE, Recompute.FULL])
@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("dropout", [True, False])
@pytest.mark.parametrize("name", ["gpt2", "llama3-8b", "bert-base"])
def test_recomputation_changes_no_gradient(
    name: str, dropout: bool, fused: bool, recompute: Recompute
) -> None:
    spec = tiny(name, dropout=dropout, fused_attention=fused)
    batch = draw(spec)
    seed_dropout(3)
    expected = gradients(build_model(spec), *batch)
    seed_dropout(3)
    result = gradients(build_model(spec, recompute=recompute), *batch)
    assert all(torch.equal(result[name], expected[name]) for name in expected)


def saved_bytes(spec: TransformerSpec, recompute: Recompute) -> int:
    stage = build_model(spec, recompute=recompute)
    parameters = {p.untyped_storage().data_ptr() for p in stage.parameters()}
    kept: dict[int, int] = {}

    def pack(x: Tensor) -> Tensor:
        storage = x.untyped_storage()
        if storage.data_ptr() not in parameters:
            kept[storage.data_ptr()] = storage.nbytes()
        return x

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
        output = stage(draw(spec)[0])
    assert output.requires_grad
    return sum(kept.values())


def test_recomputation_keeps_less() -> None:
    # A training forward keeps, per token: all of a layer, all but its scores, or its input.
    spec = tiny("gpt2", fused_attention=False, seq_len=20)
    none, selective, full = (saved_bytes(spec, mode) for mode in Recompute)
    scores = spec.num_layers * 3 * spec.num_attention_heads * 20 * 20 * 4
    assert none - selective >= scores
    assert full < selective / 2


def test_dropout_is_as_the_spec_says_and_off_in_evaluation() -> None:
    tokens, _ = draw(FAMILIES["gpt2"])
    plain, dropping = build_model(tiny("gpt2")), build_model(tiny("gpt2", dropout=True))
    assert torch.equal(plain(tokens), plain(tokens))
    assert not torch.equal(dropping(tokens), dropping(tokens))
    assert torch.equal(dropping.eval()(tokens), plain(tokens))


def test_dropout_masks_depend_on_seed_and_place() -> None:
    tokens, _ = draw(FAMILIES["gpt2"])
    stage = build_model(tiny("gpt2", dropout=True))

    def output(seed: int, *coordinates: int) -> Tensor:
        seed_dropout(seed, *coordinates)
        return stage(tokens)

    assert torch.equal(output(1, 0, 2), output(1, 0, 2))
    assert not torch.equal(output(1, 0, 2), output(1, 1, 2))
    assert not torch.equal(output(1, 0, 2), output(2, 0, 2))
