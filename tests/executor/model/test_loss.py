"""The loss: fp32, mean over counted tokens, going down."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from parsim.errors import ModelError
from parsim.model.reader import model_spec
from parsim.model.transformer import TransformerSpec

torch = pytest.importorskip("torch")

from executor.model.loss import IGNORED, check_trainable, cross_entropy  # noqa: E402
from executor.model.module import build_model  # noqa: E402
from tests.executor.tiny import draw, each_trained, tiny  # noqa: E402

if TYPE_CHECKING:
    from torch import Tensor


def test_the_loss_is_the_mean_over_tokens_in_fp32() -> None:
    logits = torch.randn(2, 5, 11, generator=torch.Generator().manual_seed(0)).bfloat16()
    targets = torch.arange(10).view(2, 5)
    shares = logits.double().log_softmax(-1)
    expected = -shares.gather(-1, targets.unsqueeze(-1)).mean()
    result = cross_entropy(logits, targets)
    assert result.dtype == torch.float32
    assert result.item() == pytest.approx(expected.item(), rel=1e-6)


def test_tokens_without_a_target_do_not_count() -> None:
    logits = torch.randn(1, 4, 11, generator=torch.Generator().manual_seed(0))
    targets = torch.tensor([[3, IGNORED, 5, IGNORED]])
    assert torch.equal(
        cross_entropy(logits, targets), cross_entropy(logits[:, ::2], targets[:, ::2])
    )


@pytest.mark.parametrize("name", ["float32", "bfloat16", "float64"])
def test_gradients_are_those_of_torch(name: str) -> None:
    dtype = getattr(torch, name)
    generator = torch.Generator().manual_seed(0)
    ours = torch.randn(2, 5, 11, generator=generator).to(dtype).requires_grad_()
    theirs = ours.detach().clone().requires_grad_()
    targets = torch.tensor([[3, IGNORED, 5, 0, 10], [IGNORED] * 4 + [7]])
    (cross_entropy(ours, targets) * 3).backward()
    wide = theirs.flatten(0, 1).to(torch.promote_types(dtype, torch.float32))
    (torch.nn.functional.cross_entropy(wide, targets.flatten()) * 3).backward()
    assert ours.grad.dtype == dtype
    assert torch.allclose(ours.grad, theirs.grad, rtol=1e-6 if dtype != torch.bfloat16 else 2**-8)


def test_only_the_softmax_is_kept() -> None:
    logits = torch.randn(4, 8, 1000).bfloat16().requires_grad_()
    targets = torch.randint(1000, (4, 8))
    kept: list[int] = []

    def keep(value: Tensor) -> Tensor:
        kept.append(value.nbytes)
        return value

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda value: value):
        cross_entropy(logits, targets)
    assert 4 * logits.numel() < sum(kept) < 4.1 * logits.numel()


def test_backward_runs_once() -> None:
    value = cross_entropy(torch.randn(1, 2, 5, requires_grad=True), torch.tensor([[1, 2]]))
    value.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        value.backward()


def test_a_model_without_a_head_cannot_be_trained() -> None:
    check_trainable(tiny("bert-base"))
    with pytest.raises(ModelError, match="set head: mlm"):
        check_trainable(model_spec("bert-base"))


@each_trained
def test_a_few_steps_lower_the_loss(spec: TransformerSpec) -> None:
    stage, (tokens, targets) = build_model(spec), draw(spec, rows=1)
    optimizer = torch.optim.SGD(stage.parameters(), lr=0.5)
    history = []
    for _ in range(4):
        optimizer.zero_grad()
        value = cross_entropy(stage(tokens), targets)
        value.backward()
        optimizer.step()
        history.append(value.item())
    assert history[-1] < history[0]
