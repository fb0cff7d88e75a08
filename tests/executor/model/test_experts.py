"""A mixture of experts in one process: against one token at a time, and what it keeps."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from executor.model.blocks import make_mixture  # noqa: E402
from executor.model.mixture import grouped  # noqa: E402
from executor.model.mixture.experts import Mixture, Share  # noqa: E402
from executor.model.module import build_model, build_stage  # noqa: E402
from parsim.cost.layer.kept.expert_tensors import expert_bytes  # noqa: E402
from parsim.model.operators import Experts  # noqa: E402
from parsim.model.transformer import TransformerSpec, build_transformer  # noqa: E402
from parsim.plan import Plan, PlanTable  # noqa: E402
from tests.executor.tiny import FAMILIES  # noqa: E402

MIXTURES = {name: FAMILIES[name] for name in ("mixtral", "qwen3-moe", "experts-with-all")}
each_mixture = pytest.mark.parametrize("spec", MIXTURES.values(), ids=MIXTURES)


def mixture(spec: TransformerSpec) -> Mixture:
    """Double precision, and weights that choose clearly."""
    torch.manual_seed(1)
    made = make_mixture(spec)
    made.double()
    for parameter in made.parameters():
        torch.nn.init.normal_(parameter, 0.0, 0.3)
    return made


def one_token(layer: Mixture, x: Tensor) -> Tensor:
    """Softmax over all experts, the best chosen and normalised, as Mixtral's code has it."""
    shares = F.linear(x, layer.router.weight, layer.router.bias).softmax(0)
    best, which = shares.topk(layer.top_k)
    total = torch.zeros_like(x)
    for share, number in zip(best / best.sum(), which.tolist(), strict=True):
        total = total + share * one_expert(layer, number, x)
    return total if layer.shared is None else total + layer.shared(x.view(1, 1, -1)).view(-1)


def one_expert(layer: Mixture, number: int, x: Tensor) -> Tensor:
    experts = layer.experts
    halves = [matrix @ x for matrix in experts.up[number]]
    if experts.up_bias is not None:
        halves = [y + b for y, b in zip(halves, experts.up_bias[number], strict=True)]
    y = F.silu(halves[0]) * halves[1] if len(halves) == 2 else F.gelu(halves[0], approximate="tanh")
    out = experts.down[number] @ y
    return out if experts.down_bias is None else out + experts.down_bias[number]


def unbalanced(layer: Mixture, x: Tensor) -> Tensor:
    """Switch Transformers' loss of a layer, as its paper writes it: E sum_i f_i P_i."""
    shares = F.linear(x, layer.router.weight, layer.router.bias).softmax(1)
    chosen = F.one_hot(shares.topk(layer.top_k, dim=1).indices, shares.shape[1]).sum(1)
    return (chosen.double().mean(0) * shares.mean(0)).sum() * shares.shape[1]


@each_mixture
def test_output_and_gradients_are_those_of_tokens_one_by_one(spec: TransformerSpec) -> None:
    layer = mixture(spec)
    layer.balance.weight = 0.7
    x = torch.randn(3, 5, spec.hidden_size, dtype=torch.double, requires_grad=True)
    expected = torch.stack([one_token(layer, token) for token in x.flatten(0, 1)]).view_as(x)
    result = layer(x)
    assert torch.allclose(result, expected, rtol=1e-12)
    wanted = (x, *layer.parameters())
    gradients = torch.autograd.grad(result.square().sum(), wanted)
    loss = expected.square().sum() + 0.7 * unbalanced(layer, x.flatten(0, 1))
    exact = torch.autograd.grad(loss, wanted)
    for gradient, other in zip(gradients, exact, strict=True):
        assert torch.allclose(gradient, other, rtol=1e-9, atol=1e-12)


def test_experts_without_tokens_get_a_gradient_of_zero() -> None:
    layer = mixture(MIXTURES["mixtral"])
    layer.received = []
    layer(torch.randn(1, 1, 24, dtype=torch.double)).sum().backward()
    assert layer.received == [2]
    reached = [bool(gradient.any()) for gradient in layer.experts.up.grad]
    assert reached.count(True) == 2


def test_choices_do_not_hang_on_the_precision_of_products() -> None:
    layer = mixture(MIXTURES["mixtral"])
    layer.float()
    x = torch.randn(7, 24).bfloat16()
    assert layer.router(x).dtype == torch.float32
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(layer.router(x), layer.router(x.float()))


def test_experts_are_the_same_however_they_are_shared() -> None:
    spec = MIXTURES["mixtral"]
    whole = build_model(spec, seed=4).layers["1"].mlp.experts
    share = Share(ep=3, index=1, etp=2, slice=1)
    some = build_stage(
        spec, first_layer=1, num_layers=1, embedding=False, head=False, seed=4, share=share
    )
    part = some.layers["1"].mlp.experts
    assert torch.equal(part.up, whole.up[2:4, :, 10:])
    assert torch.equal(part.down, whole.down[2:4, :, 10:])


@each_mixture
def test_no_more_is_kept_than_the_record_says(spec: TransformerSpec) -> None:
    """The record's 13 bytes a token and expert are more than what the choice keeps here."""
    record = next(layer.experts for layer in build_transformer(spec).blocks if layer.experts)
    assert isinstance(record, Experts)
    layer, tokens = make_mixture(spec), 4 * spec.seq_len
    layer.shared = None
    x = torch.randn(4, spec.seq_len, spec.hidden_size, requires_grad=True)
    kept: dict[int, int] = {}
    given = {tensor.untyped_storage().data_ptr() for tensor in layer.parameters()}

    def keep(value: Tensor) -> Tensor:
        storage = value.untyped_storage()
        if storage.data_ptr() not in given:
            kept[storage.data_ptr()] = storage.nbytes()
        return value

    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter, 0.0, 0.3)
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda value: value):
        layer(x)
    table = PlanTable.of([Plan(precision="fp32", microbatch_size=4)])
    expected = float(expert_bytes(record, table, torch.tensor(tokens).numpy(), 4.0)[0])
    biased = 2 * tokens * 4 * spec.hidden_size if record.bias else 0
    assert 0.85 * expected <= sum(kept.values()) <= 1.05 * expected + biased


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_one_launch_for_all_experts_is_the_loop_over_them(
    dtype: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = [3, 0, 5, 8]
    generator = torch.Generator().manual_seed(3)
    rows = torch.randn(16, 32, generator=generator).to(dtype).requires_grad_()
    weights = torch.randn(4, 24, 32, generator=generator).to(dtype).requires_grad_()

    def gradients() -> list[Tensor]:
        counts = grouped.Counts(torch.tensor(sizes), len(rows))
        out = grouped.grouped(rows, weights, counts)
        return [out, *torch.autograd.grad(out.square().sum(), (rows, weights))]

    looped = gradients()
    monkeypatch.setattr(grouped, "in_one_launch", lambda *_: True)
    launched = gradients()
    assert all(torch.equal(a, b) for a, b in zip(looped, launched, strict=True))
    assert not launched[2][1].any()


def test_one_launch_is_for_gpus() -> None:
    assert not grouped.in_one_launch(torch.ones(2, 8, dtype=torch.bfloat16), 8)
