"""Plain torch beside the executor: each trains parameters of its own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from executor.first_hour.alone import alone, scenario_of  # noqa: E402
from executor.first_hour.speed import compared, plain_model  # noqa: E402
from executor.suite.models import TINY  # noqa: E402
from parsim.scenario import Scenario, load_scenario  # noqa: E402


@pytest.fixture
def under_autocast(tmp_path: Path) -> Scenario:
    """The scenario of a GPU's precision, on a CPU."""
    path = scenario_of(json.dumps(TINY), "cpu", tmp_path).path
    assert path is not None
    return load_scenario(path, {"training.precision": "bf16_amp"})


def test_the_copy_computes_with_its_own_parameters(under_autocast: Scenario) -> None:
    with alone(under_autocast, "cpu") as here:
        model = plain_model(here)
        tokens, targets = here.batches[0]
        with torch.autocast("cpu", torch.bfloat16):
            outputs = model(tokens)
        here.trainer.loss_fn(outputs, targets).backward()
        assert all(parameter.grad is not None for parameter in model.parameters())
        [replica] = here.trainer.replicas
        assert all(parameter.grad is None for parameter in replica.stage.parameters())


def test_both_are_timed(under_autocast: Scenario) -> None:
    with alone(under_autocast, "cpu") as here:
        result = compared(here, steps=1)
    assert result["precision"] == "bf16_amp"
    assert result["ratio"] > 0.0
