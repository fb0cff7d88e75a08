"""What a precision means for fp32 products and convolutions, which torch's settings decide."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from executor.calibration.timing.bench import Bench  # noqa: E402
from executor.measure.gradients import _computing  # noqa: E402
from executor.parallel.precision import apply_autocast  # noqa: E402
from executor.strategies.replica import FlatReplica  # noqa: E402
from parsim.plan import Plan  # noqa: E402
from tests.executor.tiny import FAMILIES  # noqa: E402

CPU = torch.device("cpu")


def settings() -> tuple[str, bool]:
    return torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32


@pytest.fixture(autouse=True)
def torchs_own() -> Iterator[None]:
    """Begin as torch does: products in fp32, convolutions in TF32."""
    before = settings()
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.allow_tf32 = True
    yield
    torch.set_float32_matmul_precision(before[0])
    torch.backends.cudnn.allow_tf32 = before[1]


@pytest.mark.parametrize(
    ("precision", "wanted"),
    [("fp32", ("highest", False)), ("tf32", ("high", True)), ("bf16", ("highest", False))],
)
def test_convolutions_are_computed_as_products_are(
    precision: str, wanted: tuple[str, bool]
) -> None:
    stage: Any = SimpleNamespace(forward=None)
    apply_autocast(stage, Plan(precision=precision), "cpu")
    assert settings() == wanted
    torch.backends.cudnn.allow_tf32 = not wanted[1]
    Bench(CPU, precision)
    assert settings() == wanted


def test_a_strategys_replica_computes_in_fp32() -> None:
    FlatReplica(FAMILIES["gpt2"], seed=0, device=CPU)
    assert settings() == ("highest", False)


def test_one_process_computes_as_it_is_asked_and_leaves_the_rest_alone() -> None:
    with _computing("fp32", CPU):
        assert settings() == ("highest", False)
    assert settings() == ("highest", True)
    with _computing("tf32", CPU):
        assert settings() == ("high", True)
    assert settings() == ("highest", True)
