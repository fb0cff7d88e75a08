"""Choices of experts beside the papers' equations, one token at a time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from executor.model.mixture.choice import Choice  # noqa: E402
from tests.executor.workers.specs import SPECS  # noqa: E402


def chosen(spec: Any, logits: list[float], bias: list[float]) -> dict[int, float]:
    """Weights by expert of one token: DeepSeek-V2's and -V3's rules in plain numbers."""
    numbers = torch.tensor(logits, dtype=torch.float64)
    sigmoid = spec.router_scoring == "sigmoid"
    scores = (numbers.sigmoid() if sigmoid else numbers.softmax(0)).tolist()
    wished = [score + more for score, more in zip(scores, bias, strict=True)]
    size = len(logits) // spec.expert_groups
    groups = [range(at * size, (at + 1) * size) for at in range(spec.expert_groups)]

    def suits(group: range) -> float:
        best = sorted((wished[expert] for expert in group), reverse=True)
        return float(sum(best[:2]) if sigmoid else best[0])

    kept = sorted(groups, key=suits, reverse=True)[: spec.groups_per_token]
    inside = sorted((expert for group in kept for expert in group), key=lambda e: -wished[e])
    best = inside[: spec.experts_per_token]
    total = sum(scores[expert] for expert in best) if spec.norm_topk_prob else 1.0
    return {expert: spec.routed_scaling_factor * scores[expert] / total for expert in best}


@pytest.mark.parametrize("name", ["deepseek", "deepseek v2"])
@pytest.mark.parametrize("kept", [1, 2, 4])
def test_choices_are_those_of_the_papers(name: str, kept: int) -> None:
    spec = replace(SPECS[name], groups_per_token=kept)
    generator = torch.Generator().manual_seed(kept)
    logits = torch.randn(64, spec.num_experts, generator=generator, dtype=torch.float64)
    bias = torch.randn(spec.num_experts, generator=generator, dtype=torch.float64)
    given = bias if spec.router_bias else None
    weights, experts = Choice.of(spec)(logits, given)
    zeros = [0.0] * spec.num_experts
    for token, row in enumerate(logits.tolist()):
        wanted = chosen(spec, row, zeros if given is None else bias.tolist())
        by_expert = dict(zip(experts[token].tolist(), weights[token].tolist(), strict=True))
        assert by_expert == pytest.approx(wanted, rel=1e-12)


def test_a_bias_of_choice_changes_no_weight_and_is_not_trained() -> None:
    spec = replace(SPECS["deepseek"], groups_per_token=4)
    logits = torch.randn(8, spec.num_experts, dtype=torch.float64, requires_grad=True)
    bias = torch.nn.Parameter(torch.zeros(spec.num_experts, dtype=torch.float64), False)
    weights, experts = Choice.of(spec)(logits, bias)
    moved, same = Choice.of(spec)(logits, torch.nn.Parameter(bias + 3.0, False))
    assert torch.equal(experts, same)
    assert torch.equal(weights, moved)
    assert torch.autograd.grad(weights.square().sum(), logits)[0].abs().sum() > 0


def test_groups_and_scores_of_mixtral_are_as_they_were() -> None:
    spec = SPECS["mixtral"]
    logits = torch.randn(8, spec.num_experts)
    weights, experts = Choice.of(spec)(logits, None)
    best = logits.topk(spec.experts_per_token)
    assert torch.equal(experts, best.indices)
    assert torch.equal(weights, best.values.softmax(-1))
