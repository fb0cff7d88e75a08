"""Tables of kernels: what is read, what is skipped and why."""

from __future__ import annotations

from pathlib import Path

import pytest

from parsim.errors import TableError
from parsim.validation.kernel.measured_kernel import device_of, parse_kernel, read_kernel_table
from parsim.validation.tables import RowSkipped, shipped_tables

GEMM = {
    "row_id": "1",
    "gpu_type": "A100",
    "op": "mlp_up_proj",
    "m": "64",
    "n": "8192",
    "k": "1024",
    "dtype": "16-bit",
    "time_us": "15",
}
SIMUMAX = {
    "row_id": "2",
    "gpu_type": "B200-SXM",
    "op": "matmul",
    "in_dtype": "bf16",
    "out_dtype": "fp32",
    "layout": "NT",
    "accumulate": "True",
    "batch": "1",
    "m": "1536",
    "n": "5120",
    "k": "4096",
    "peak_tflops_used": "2250",
    "efficiency": "0.5",
}
ATTENTION = {
    "row_id": "3",
    "gpu_type": "A100-PCIe-80GB",
    "op": "sdp_bwd",
    "efficiency": "0.8",
    "peak_tflops_used": "312",
    "shape_key": "batch=1, seq_len=4096, head_num=64, "
    "kv_head_num=64, qk_head_dim=192, v_head_dim=128, qkv_contiguous=True",
}
GROUPED = {
    "row_id": "4",
    "gpu_type": "B200-SXM",
    "op": "group_matmul",
    "efficiency": "0.4",
    "peak_tflops_used": "2250",
    "shape_key": "ng=20, M=1232, N=3072, K=5120, dtype=bf16, "
    "out_dtype=bf16, main_grad_dtype=fp32, stage=bwd_grad_w",
}


def test_a_time_stands_as_it_is() -> None:
    kernel = parse_kernel(GEMM)
    assert (kernel.kind, kernel.precision, kernel.device.id) == ("gemm", "bf16", "a100-sxm-80gb")
    assert kernel.seconds == pytest.approx(15e-6)
    assert (kernel.shape["m"], kernel.shape["n"], kernel.shape["k"]) == (64, 8192, 1024)


def test_a_share_of_a_peak_becomes_a_time() -> None:
    kernel = parse_kernel(SIMUMAX)
    assert kernel.seconds == pytest.approx(2 * 1536 * 5120 * 4096 / (0.5 * 2250e12))
    assert (kernel.shape["layout"], kernel.shape["out_value"]) == ("nt", 4)
    assert kernel.shape["accumulate"] is True


def test_a_rate_becomes_a_time() -> None:
    row = {**GEMM, "time_us": "", "achieved_tflops": "100"}
    assert parse_kernel(row).seconds == pytest.approx(2 * 64 * 8192 * 1024 / 100e12)


def test_attention_executes_half_of_the_square_that_the_table_counts() -> None:
    kernel = parse_kernel(ATTENTION)
    square = 2.5 * 2 * 64 * 4096**2 * (192 + 128)
    assert kernel.kind == "attention_backward"
    assert kernel.seconds == pytest.approx(square / (0.8 * 312e12))
    assert kernel.shape["flops"] == pytest.approx(square / 2)


def test_a_grouped_product_is_read_from_its_key() -> None:
    kernel = parse_kernel(GROUPED)
    assert kernel.kind == "grouped_gemm"
    assert kernel.shape["weight_gradient"] is True
    assert kernel.shape["gradient_value"] == 4
    assert kernel.seconds == pytest.approx(2 * 20 * 1232 * 3072 * 5120 / (0.4 * 2250e12))


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (
            {**GEMM, "gpu_type": "Intel Gaudi 3"},
            "gpu_type: device 'Intel Gaudi 3' is not in the catalog",
        ),
        ({**GEMM, "gpu_type": ""}, "gpu_type: device '' is not in the catalog"),
        ({**GEMM, "op": "rms_norm"}, "op 'rms_norm' is not priced"),
        ({**GEMM, "m": ""}, "m is not stated"),
        ({**GEMM, "m": "many"}, "m='many' is not a whole number"),
        ({**GEMM, "k": "-8"}, "k='-8' is not a whole number from 0 to 1,000,000,000"),
        ({**GEMM, "k": "nan"}, "k='nan' is not a whole number from 0"),
        ({**GEMM, "k": "1e300"}, "k='1e300' is not a whole number from 0"),
        ({**GEMM, "n": "8.5"}, "n='8.5' is not a whole number"),
        ({**GEMM, "time_us": "0"}, "time_us='0' must be a number from 1e-15 to 1e+15"),
        ({**GEMM, "time_us": ""}, "no time"),
        ({**GEMM, "dtype": "int4"}, "dtype 'int4' is not one of"),
        ({**GEMM, "dtype": "fp8"}, "a100-sxm-80gb has no fp8 peak"),
        ({**SIMUMAX, "layout": "TT"}, "layout 'tt' is not one of tn, nn, nt"),
        ({**SIMUMAX, "peak_tflops_used": ""}, "peak_tflops_used is not stated"),
        ({**ATTENTION, "shape_key": "batch=1"}, "seq_len is not stated"),
        ({**GROUPED, "shape_key": "ng=1, M=1, N=1, K=1, dtype=bf16"}, "stage '' is not one of"),
    ],
)
def test_a_row_that_cannot_be_priced_says_why(row: dict[str, str], reason: str) -> None:
    with pytest.raises(RowSkipped) as skipped:
        parse_kernel(row)
    assert reason in str(skipped.value)


@pytest.mark.parametrize(
    ("name", "id"),
    [
        ("A100", "a100-sxm-80gb"),
        ("H100", "h100-sxm-80gb"),
        ("B200-SXM", "b200-sxm"),
        ("A100-PCIe-80GB", "a100-pcie-80gb"),
        ("NVIDIA H200 SXM", "h200-sxm"),
        ("NVIDIA A100-SXM4-40GB", "a100-sxm-40gb"),
        ("NVIDIA H100 PCIe", "h100-pcie-80gb"),
        ("Tesla V100-SXM2-16GB", "v100-sxm-16gb"),
        ("NVIDIA GB200", "gb200"),
        ("L4", "l4"),
        ("H20", "h20-sxm"),
        ("A40", "a40"),
        ("h100-sxm-96gb-500w", "h100-sxm-96gb-500w"),
    ],
)
def test_names_of_devices(name: str, id: str) -> None:
    assert device_of(name).id == id


@pytest.mark.parametrize("name", ["NVIDIA GH200", "H100 NVL", "B400", "A100X"])
def test_other_devices_are_not_taken_for_known_ones(name: str) -> None:
    with pytest.raises(RowSkipped):
        device_of(name)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "columns missing: row_id, gpu_type, op"),
        (b"a,b\n1,2\n", "columns missing: row_id, gpu_type, op"),
        (b"row_id,gpu_type,op\n", "no rows below the header"),
        (b"\xff\xfe", "not UTF-8 text"),
        (b'row_id,gpu_type,op\n"1,2,3\n', "not CSV"),
    ],
)
def test_a_table_that_is_none(tmp_path: Path, text: bytes, message: str) -> None:
    path = tmp_path / "table.csv"
    path.write_bytes(text)
    with pytest.raises(TableError, match=message):
        read_kernel_table(path)


def test_every_shipped_row_states_its_source() -> None:
    tables = shipped_tables("kernels")
    assert len(tables) == 6
    rows = [row for path in tables for row in read_kernel_table(path)]
    assert len(rows) == 1400 + 697 + 208 + 26 + 1236 + 1500
    assert all(row["source"] and row["row_id"] for row in rows)
