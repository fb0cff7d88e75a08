"""The loss: fp32, mean over counted tokens, going down."""

from __future__ import annotations

import pytest

from parsim.errors import ModelError
from parsim.model.reader import model_spec
from parsim.model.transformer import TransformerSpec

torch = pytest.importorskip("torch")

from executor.loss import IGNORED, check_trainable, loss  # noqa: E402
from executor.module import build_model  # noqa: E402
from tests.executor.tiny import draw, each_trained, tiny  # noqa: E402


def test_the_loss_is_the_mean_over_tokens_in_fp32() -> None:
    logits = torch.randn(2, 5, 11, generator=torch.Generator().manual_seed(0)).bfloat16()
    targets = torch.arange(10).view(2, 5)
    shares = logits.double().log_softmax(-1)
    expected = -shares.gather(-1, targets.unsqueeze(-1)).mean()
    found = loss(logits, targets)
    assert found.dtype == torch.float32
    assert found.item() == pytest.approx(expected.item(), rel=1e-6)


def test_tokens_without_a_target_do_not_count() -> None:
    logits = torch.randn(1, 4, 11, generator=torch.Generator().manual_seed(0))
    targets = torch.tensor([[3, IGNORED, 5, IGNORED]])
    assert torch.equal(loss(logits, targets), loss(logits[:, ::2], targets[:, ::2]))


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
        value = loss(stage(tokens), targets)
        value.backward()
        optimizer.step()
        history.append(value.item())
    assert history[-1] < history[0]
