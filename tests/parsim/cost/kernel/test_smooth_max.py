from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parsim.cost.kernel.smooth_max import smooth_max

positive = st.floats(min_value=0, max_value=1e6)


@given(a=positive, b=positive, power=st.sampled_from([2, 4, 8]))
def test_smooth_maximum_lies_above_and_near_the_maximum(a: float, b: float, power: int) -> None:
    smooth = float(smooth_max(a, b, power))
    assert max(a, b) <= smooth <= max(a, b) * 2 ** (1 / power) * (1 + 1e-12)
    assert smooth == float(smooth_max(b, a, power))


def test_smooth_maximum_of_tiny_and_zero_values() -> None:
    assert float(smooth_max(0.0, 0.0, 8)) == 0.0
    assert float(smooth_max(1e-60, 0.0, 8)) == 1e-60
    assert smooth_max(np.array([3e-60, 1.0]), 4e-60, 2) == pytest.approx([5e-60, 1.0])
