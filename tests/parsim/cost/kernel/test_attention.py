"""Attention of Blackwell in a step beside cuDNN's published benchmark.

Source: NVIDIA/cudnn-frontend (commit 3929da2), sdpa_benchmark_training, cuDNN 9.22, causal (half of
the square counted), backward not deterministic; TFLOP/s.
"""

from __future__ import annotations

import pytest

from parsim.cluster.reader import load_catalog
from parsim.cost.kernel.flash import flash_attention_time
from parsim.cost.software import software

KEYS = (2048, 4096, 8192, 16384, 32768)
RATES = {
    ("gb200", 128, False): (1097, 1408, 1574, 1708, 1622),
    ("gb200", 128, True): (885, 1148, 1332, 1328, 1226),
    ("gb200", 192, False): (1072, 1406, 1585, 1678, 1743),
    ("gb200", 192, True): (846, 1057, 1193, 1134, 1076),
    ("gb300", 128, False): (1373, 1703, 1856, 1915, 1953),
    ("gb300", 128, True): (967, 1248, 1435, 1507, 1490),
    ("gb300", 192, False): (1285, 1590, 1825, 1967, 1991),
    ("gb300", 192, True): (914, 1143, 1291, 1302, 1289),
}
WARM = 0.9
"""What a step sustains of runs of ten iterations on cool boards."""


@pytest.mark.parametrize(("name", "head", "backward"), RATES)
def test_rates_in_a_step_are_those_of_the_benchmark_on_warm_boards(
    name: str, head: int, backward: bool
) -> None:
    device = load_catalog().device(name)
    assert device.attention_sustained == WARM
    factor = software("megatron-bridge").attention_factor["default"][backward]
    for keys, rate in zip(KEYS, RATES[name, head, backward], strict=True):
        flops = 1e15  # so long that a launch is nothing beside it
        seconds = flash_attention_time(
            device,
            "bf16",
            flops=flops,
            seq_len=keys,
            backward=backward,
            efficiency=factor,
            head_dim=head,
        )
        limit = 0.25 if backward and keys > 16384 else 0.12  # long backwards lose rate again
        assert flops / float(seconds) == pytest.approx(WARM * rate * 1e12, rel=limit)


NARROW = {
    ("gb200", "fp8", 128, False): (1805, 2047),
    ("gb200", "fp8", 128, True): (1178, 1454),
    ("gb200", "fp8", 192, False): (2095, 2397),
    ("gb200", "fp8", 192, True): (1692, 1959),
    ("gb200", "mxfp8", 128, False): (1685, 1902),
    ("gb200", "mxfp8", 128, True): (1054, 1287),
    ("gb200", "mxfp8", 192, False): (1925, 2219),
    ("gb200", "mxfp8", 192, True): (1364, 1494),
    ("gb300", "fp8", 128, False): (2532, 2897),
    ("gb300", "fp8", 128, True): (1396, 1781),
    ("gb300", "fp8", 192, False): (2788, 3128),
    ("gb300", "fp8", 192, True): (1982, 2310),
    ("gb300", "mxfp8", 128, False): (2272, 2570),
    ("gb300", "mxfp8", 128, True): (1143, 1404),
    ("gb300", "mxfp8", 192, False): (2517, 2829),
    ("gb300", "mxfp8", 192, True): (1522, 1780),
}
"""Device, format, heads' width, backward: rates of 4,096 and 8,192 keys."""


@pytest.mark.parametrize(("name", "form", "head", "backward"), NARROW)
def test_attention_in_8_bit_is_faster_by_what_the_benchmark_says(
    name: str, form: str, head: int, backward: bool
) -> None:
    device = load_catalog().device(name)
    for keys, rate in zip(KEYS[1:3], NARROW[name, form, head, backward], strict=True):
        wide, narrow = (
            flash_attention_time(
                device,
                "bf16",
                flops=1e15,
                seq_len=keys,
                backward=backward,
                head_dim=head,
                narrow=how,
            )
            for how in (None, form)
        )
        sixteen = RATES[name, head, backward][keys // 4096]
        assert float(wide / narrow) == pytest.approx(rate / sixteen, rel=0.06)


@pytest.mark.parametrize("form", ["fp8", "mxfp8"])
def test_a_device_without_a_table_is_no_faster_in_8_bit(form: str) -> None:
    device = load_catalog().device("l4")
    for backward in (False, True):
        assert device.attention_gain(form, backward=backward, wide=False) == 1.0
