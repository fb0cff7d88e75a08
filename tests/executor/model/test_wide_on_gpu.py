"""A GPU's flash kernel takes 16 bit alone: attention in wider dtypes goes another way there."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.nn import functional  # noqa: E402

from executor.model.attention import self_attention  # noqa: E402
from executor.model.attention.self_attention import Core, HeadNorm  # noqa: E402
from executor.model.attention.shaped import Shape  # noqa: E402
from executor.model.norms import OffsetRMSNorm, RMSNorm  # noqa: E402

NARROW, WIDE = (torch.float16, torch.bfloat16), (torch.float32, torch.float64)


class OnGpu(torch.Tensor):  # type: ignore[misc,name-defined]
    """A tensor of the CPU that says that it lies on a GPU."""

    is_cuda = property(lambda _: True)


def drawn(width: int, dtype: Any) -> Any:
    return torch.randn(1, 2, 24, width).to(dtype).as_subclass(OnGpu)


@pytest.fixture
def flash(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The dtypes in which a flash kernel was asked for."""
    asked: list[Any] = []

    def kernel(q: Any, _: Any, v: Any, *__: int, **___: bool) -> Any:
        asked.append(q.dtype)
        return torch.zeros_like(v)

    monkeypatch.setattr(self_attention, "windowed", kernel)
    monkeypatch.setattr(self_attention, "narrow_values", kernel)
    return asked


@pytest.mark.parametrize("dtype", [*NARROW, *WIDE])
@pytest.mark.parametrize(("width", "window"), [(8, 5), (4, None)])
def test_only_16_bit_is_asked_of_flash(
    dtype: Any, width: int, window: int | None, flash: list[Any]
) -> None:
    """Windows, and values narrower than queries, as latent attention has them."""
    core = Core(fused=True, causal=True, dropout=0.0, shape=Shape(window=window))
    q, k, v = drawn(8, dtype), drawn(8, dtype), drawn(width, dtype)
    given = core(q, k, v)
    assert flash == ([dtype] if dtype in NARROW else [])
    if dtype in WIDE:
        plain = Core(fused=False, causal=True, dropout=0.0, shape=Shape(window=window))
        assert torch.allclose(given, plain(q, k, v), rtol=0, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_norms_have_one_kernel_and_heads_the_dtype_of_their_products(
    monkeypatch: pytest.MonkeyPatch, dtype: Any
) -> None:
    """Where autocast gives 16 bit to weights in fp32; torch 2.11 fuses equal dtypes alone."""
    asked: list[Any] = []
    plain = functional.rms_norm

    def noted(x: Any, shape: Any, weight: Any, eps: float) -> Any:
        asked.append((x.dtype, weight.dtype))
        return plain(x, shape, weight, eps)

    monkeypatch.setattr(functional, "rms_norm", noted)
    heads, x = HeadNorm(8, 1e-6), drawn(8, dtype)
    torch.nn.init.ones_(heads.weight)
    wide = [norm(x) for norm in (RMSNorm(8, eps=1e-6), OffsetRMSNorm(8))]
    normed = heads(x)
    assert set(asked) == {(torch.float32, torch.float32)}
    assert {y.dtype for y in wide} == {torch.float32}
    assert normed.dtype == dtype
    assert torch.equal(normed, wide[0].to(dtype))
