"""Products are timed with their operands in memory as training has them."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.nn import functional as F  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

from executor.calibration.cases import kinds  # noqa: E402
from executor.calibration.cases.workloads import TimedCase, products  # noqa: E402
from executor.calibration.timing.operators import Operators  # noqa: E402

M, N, K = 8, 5, 3


class Products(TorchDispatchMode):  # type: ignore[misc]
    """The operands of each matrix product: their sizes and strides."""

    def __init__(self) -> None:
        super().__init__()
        self.operands: list[Any] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten.mm.default:
            self.operands.append([(tuple(x.shape), x.stride()) for x in args])
        return func(*args, **(kwargs or {}))


def test_products_are_those_of_a_linear_map() -> None:
    x, weight = torch.randn(M, K, requires_grad=True), torch.randn(N, K, requires_grad=True)
    with Products() as trained:
        F.linear(x, weight).backward(torch.randn(M, N))
    operators = Operators(torch.device("cpu"), torch.float32)
    with Products() as timed:
        for case in products(M, N, K):
            operators.build(case)()()
    assert sorted(timed.operands) == sorted(trained.operands)
    assert len(timed.operands) == 3


def test_the_record_s_sides_are_those_of_the_output_s_product() -> None:
    sides = [tuple(case.shape.values()) for case in products(M, N, K)]
    assert sides == [(M, N, K), (M, K, N), (K, N, M)]
    assert TimedCase(kinds.GEMM, {"m": M, "n": N, "k": K}).key == next(products(M, N, K)).key
