"""Products in fp32 on cores without a matrix unit, against measured ones."""

from __future__ import annotations

import numpy as np
import pytest

from parsim.cluster.reader import load_catalog
from parsim.cost.kernel.kernels import gemm_time

SIZES = ((1760, 128, 1760), (2560, 64, 2560), (2048, 7000, 2048))
"""m, n and k."""
MILLISECONDS = {
    "m40": (0.336, 0.386, 13.573),
    "titan-x-maxwell": (0.315, 0.361, 12.734),
    "p100-pcie-16gb": (0.112, 0.114, 6.627),
    "gtx-1080-ti": (0.123, 0.127, 4.845),
}
"""In fp32, neither operand transposed: DeepBench (baidu-research, commit da81ba7, Apache-2.0)."""


@pytest.mark.parametrize("name", MILLISECONDS)
def test_products_that_were_measured(name: str) -> None:
    """By constants of an A100's tensor cores, all of Maxwell's were a third too fast."""
    device, errors = load_catalog().device(name), []
    for (m, n, k), milliseconds in zip(SIZES, MILLISECONDS[name], strict=True):
        seconds = float(gemm_time(device, "fp32", m=m, n=n, k=k, value=4.0))
        errors.append(abs(np.log(seconds * 1e3 / milliseconds)))
    assert max(errors) < 0.3
    assert np.mean(errors) < 0.2


def test_a_product_of_one_image_is_bound_by_its_bytes() -> None:
    """A weight's gradient of depth 1: a block's start is worth 15 of depth there, not 120."""
    device = load_catalog().device("titan-x-maxwell")
    seconds = float(gemm_time(device, "fp32", m=4096, n=4096, k=1, value=4.0))
    bytes_alone = 4.0 * 4096**2 / (device.memory_bandwidth * device.gemm_memory_efficiency)
    assert bytes_alone < seconds < 1.6 * bytes_alone
