"""Which errors of a plan are taken for rounding, and which end a run."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from parsim.plan import Plan

torch = pytest.importorskip("torch")

from executor.measure import tolerance  # noqa: E402
from executor.measure.gradients import Gradients, max_relative_error, reference  # noqa: E402
from executor.measure.tolerance import (  # noqa: E402
    EXACT,
    LOSS_IN_16_BIT,
    ROUNDINGS,
    Judgement,
    judge,
    relative_error,
)
from parsim.cli.app import main  # noqa: E402
from parsim.report.text.verified import verdict  # noqa: E402
from tests.executor.workers.parallel import batch  # noqa: E402
from tests.executor.workers.specs import GPT, LLAMA, SPECS  # noqa: E402

PLAN = Plan(precision="fp32", microbatch_size=2, num_microbatches=2)
SEED = 3
WORST = "layers.0.attention.q.weight"


def trained(plan: Plan, precision: str) -> tuple[float, Gradients]:
    return reference(GPT, plan, batch(plan, GPT), SEED, precision=precision)


def judged(plan: Plan, loss: float, gradients: Gradients) -> Judgement:
    return judge(GPT, plan, batch(plan, GPT), SEED, loss, gradients)


def off(gradients: Gradients, share: float) -> Gradients:
    """One parameter's gradient grown by a share of itself."""
    return {**gradients, WORST: gradients[WORST] * (1 + share)}


def test_the_same_numbers_have_no_error() -> None:
    result = judged(PLAN, *trained(PLAN, "fp32"))
    assert (result.max_gradient_error, result.max_loss_error) == (0.0, 0.0)
    assert (result.bound, result.loss_bound, result.within) == (EXACT, EXACT, True)


def test_rounding_in_fp32_is_drawn_in_fp64() -> None:
    loss, gradients = trained(PLAN, "fp32")
    exact = trained(PLAN, "fp64")[1]
    assert all(gradient.dtype == torch.float64 for gradient in exact.values())
    rounding = max_relative_error(gradients, exact).error
    far = judged(PLAN, loss, off(gradients, 1e-4))
    assert (far.parameter, far.within) == (WORST, False)
    assert 1e-8 < ROUNDINGS * rounding < far.bound < 1e-5
    assert judged(PLAN, loss, off(gradients, 1e-4)).bound == far.bound  # drawn from a seed


def test_the_bound_hangs_on_no_order_of_sums() -> None:
    """A router's bias sums terms that nearly cancel: 2.0e-6 off on a processor with other sums."""
    spec = replace(SPECS["experts with all"], num_layers=3)
    tokens, bias = batch(PLAN, spec), "layers.2.mlp.router.bias"
    loss, gradients = reference(spec, PLAN, tokens, SEED)
    far = {**gradients, bias: gradients[bias] * (1.0 + 1e-4)}
    result = judge(spec, PLAN, tokens, SEED, loss, far)
    assert (result.parameter, result.within) == (bias, False)
    assert 2.5e-6 < result.bound < 2.5e-5


@pytest.fixture
def near_a_choice(monkeypatch: pytest.MonkeyPatch) -> Gradients:
    """One process whose ReLU has a value that one rounding of fp32 lifts over its threshold.

    Of which are the exact gradients. Their terms cancel: a rounding of 6e-8 of them is 6e-5.
    """
    exact = torch.tensor([1.0 - 1e-8, 2.0, 3.0], dtype=torch.float64)

    def gradients() -> Gradients:
        values, cancelled = exact * 1.0, exact * 1e3 - exact * 1e3
        return {"weight": torch.where(values > 1.0, values, 0.0 * values) + cancelled}

    monkeypatch.setattr(tolerance, "reference", lambda *_, **__: (1.0, gradients()))
    return gradients()


@pytest.mark.parametrize(
    ("error", "decides"), [(0.0, True), (5e-5, True), (1e-3, False), (0.1, False)]
)
def test_a_choice_that_falls_otherwise_is_looked_at_last(
    near_a_choice: Gradients, error: float, decides: bool
) -> None:
    """It may explain anything: a plan that errs so much is not verified, though not refuted."""
    plan_gradients = {"weight": near_a_choice["weight"] * (1.0 + error)}
    result = judge(GPT, PLAN, batch(PLAN, GPT), SEED, 1.0, plan_gradients)
    assert (result.within, result.decides) == (True, decides)
    assert (result.bound < 5e-4) if decides else (result.bound > 0.5)
    assert result.to_json()["decides"] == decides


def test_a_wrong_loss_is_noticed() -> None:
    loss, gradients = trained(PLAN, "fp32")
    result = judged(PLAN, loss * (1 + 1e-5), gradients)
    assert (result.max_gradient_error, result.within) == (0.0, False)
    assert result.max_loss_error == pytest.approx(1e-5, rel=1e-3)


@pytest.mark.parametrize("precision", ["bf16", "bf16_amp"])
def test_bf16_may_be_twice_as_far_as_one_process(precision: str) -> None:
    plan = replace(PLAN, precision=precision)
    loss, gradients = trained(plan, precision)
    result = judged(plan, loss, gradients)
    assert 1e-3 < result.max_gradient_error < 0.05
    assert result.bound == pytest.approx(ROUNDINGS * result.max_gradient_error)
    assert result.loss_bound == LOSS_IN_16_BIT
    assert result.within
    # what is farther is held against drawn roundings: one processor's own may be few by luck
    far = judged(plan, loss, off(gradients, 0.2))
    assert (far.parameter, far.within) == (WORST, False)
    assert result.bound <= far.bound < 0.1
    assert judged(plan, loss, off(gradients, 0.2)).bound == far.bound


def test_bf16_gradients_added_up_in_bf16_differ() -> None:
    plan = replace(PLAN, precision="bf16", num_microbatches=8)
    wide = trained(plan, "bf16")[1]
    narrow = trained(replace(plan, gradient_precision="same"), "bf16")[1]
    assert any(not torch.equal(wide[name], narrow[name]) for name in wide)


def test_a_missing_number_is_outside() -> None:
    loss, gradients = trained(PLAN, "fp32")
    result = judged(PLAN, loss, {**gradients, WORST: gradients[WORST] * torch.nan})
    assert (result.parameter, result.within) == (WORST, False)


def test_the_reference_of_tied_copies_under_a_pipeline_has_both() -> None:
    plan = replace(PLAN, pp=2)
    assert "head.logits.weight" in trained(plan, "fp32")[1]
    tokens = batch(plan, LLAMA)
    assert "head.logits.weight" in reference(LLAMA, PLAN, tokens, SEED)[1]


OUTSIDE: dict[str, Any] = {
    "max_gradient_error": 0.5,
    "parameter": WORST,
    "max_loss_error": None,
    "bound": 1e-6,
    "loss_bound": 1e-6,
    "reference": "one process",
    "within": False,
}
MEASURED = {"measured": {"loss": [5.5, 5.4]}}
WITHIN = {**OUTSIDE, "max_gradient_error": 0.0, "max_loss_error": 0.0, "within": True}


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """`parsim run` with a document that is given, instead of ranks."""
    scenario = tmp_path / "tiny.yaml"
    scenario.write_text(
        "model: {name: gpt2}\ncluster: {system: cpu, nodes: 1}\nsoftware: executor-cpu\n"
        "training: {global_batch_size: 8, precision: fp32}\nplan: {pp: 2}\n"
    )
    monkeypatch.setattr("parsim.report.text.run.run_view", lambda *_: "view")

    def run(verify: dict[str, Any] | None, *words: str) -> int:
        document = {"verify": verify, **MEASURED}
        monkeypatch.setattr("parsim.launch.launch.run_plan", lambda *_: document)
        return main(["run", str(scenario), "--out", str(tmp_path / "out"), *words])

    return run


def test_a_run_outside_its_bound_ends_with_exit_code_4(
    run: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(OUTSIDE, "--verify", "--json") == 4
    told = capsys.readouterr()
    assert json.loads(told.out) == {"verify": OUTSIDE, **MEASURED}
    assert told.err.endswith(f"error: {verdict(OUTSIDE)}\n")
    assert (
        f"the gradient of {WORST} is off by 5.0e-01 and the loss by an infinite or undefined "
        "number from one process; allowed: 1.0e-06 and 1.0e-06"
    ) in told.err
    assert run(OUTSIDE, "--verify") == 4
    assert "view" in capsys.readouterr().out


@pytest.mark.parametrize("verify", [WITHIN, None])
def test_other_runs_end_with_exit_code_0(
    run: Callable[..., int], verify: dict[str, Any] | None
) -> None:
    assert run(verify) == 0
    assert run(verify, "--json") == 0


def test_an_error_is_relative_to_the_largest_value_which_may_be_0() -> None:
    weights, nothing = torch.tensor([4.0, 1.0]), torch.zeros(2)
    assert relative_error(torch.tensor([4.0, 3.0]), weights) == 0.5
    assert relative_error(nothing, nothing) == 0.0
    assert 1e20 < relative_error(weights, nothing) < float("inf")
