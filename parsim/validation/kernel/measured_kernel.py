"""Tables of measured kernel times: matrix products, attention, grouped products.

One kernel per CSV row, in the columns of the published tables (see `data/kernels/README.md`): a
time (`time_us`, `derived_time_us`), a rate (`achieved_tflops`) or a share of a peak (`efficiency`
with `peak_tflops_used`). A row that cannot be priced is skipped with its reason, never repaired.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from parsim.cluster.device_names import device_named
from parsim.cluster.hardware import Device
from parsim.cluster.reader import load_catalog
from parsim.cost.layer.attention import FLASH_BACKWARD
from parsim.errors import CatalogError, TableError, shown
from parsim.validation.cells import Cells
from parsim.validation.tables import RowSkipped, read_rows

NEEDED = ("row_id", "gpu_type", "op")
"""Columns that every table of kernels has."""
LAYOUTS = ("tn", "nn", "nt")
PRODUCT = re.compile(r"matmul|gemm|proj|linear|\bmm\b", re.IGNORECASE)
ATTENTION = {"sdp_fwd": "attention_forward", "sdp_bwd": "attention_backward"}
GROUPED = "group_matmul"
STAGES = ("fwd", "bwd_grad_act", "bwd_grad_w")

_PRECISIONS = {
    "16-bit": "bf16",
    "bfloat16": "bf16",
    "float16": "fp16",
    "half": "fp16",
    "float32": "fp32",
}
"""What tables call a number format."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """One measured kernel: its kind, the arguments of its cost function, seconds."""

    row_id: str
    device: Device
    kind: str
    precision: str
    shape: Mapping[str, float | str | bool]
    seconds: float


def read_kernel_table(path: Path) -> list[dict[str, str]]:
    """Read a CSV of kernels as text cells.

    Raises:
        TableError: missing file, not text, empty, no rows, or columns missing.
    """
    return read_rows(path, _check_header, strict=True)


def _check_header(path: Path, header: list[str]) -> None:
    missing = [name for name in NEEDED if name not in header]
    if missing:
        raise TableError(
            f"{path}: columns missing: {', '.join(missing)}; a table of kernels has "
            f"{', '.join(NEEDED)}, a shape and a time"
        )


def parse_kernel(row: Mapping[str, str]) -> Kernel:
    """One row as a kernel.

    Raises:
        RowSkipped: the device or op is not known, or a number is missing or impossible.
    """
    device = device_of(row.get("gpu_type", ""))
    op = row.get("op", "")
    if op == GROUPED:
        kind, precision, shape, flops = _grouped(_pairs(row.get("shape_key", "")))
    elif op in ATTENTION:
        kind, precision, shape, flops = _attention(op, _pairs(row.get("shape_key", "")))
    elif PRODUCT.search(op):
        kind, precision, shape, flops = _product(row)
    else:
        raise RowSkipped(
            f"op '{shown(op)}' is not priced: matrix products, attention, grouped products"
        )
    if precision not in device.peak_flops:
        raise RowSkipped(f"{device.id} has no {precision} peak")
    return Kernel(
        row_id=row.get("row_id") or "(no row_id)",
        device=device,
        kind=kind,
        precision=precision,
        shape=shape,
        seconds=_seconds(row, flops),
    )


def device_of(name: str) -> Device:
    """The catalog's device of a table's name.

    Raises:
        RowSkipped: no such device; a part of the name that is not understood counts as one.
    """
    try:
        return load_catalog().device(device_named(name))
    except CatalogError as error:
        raise RowSkipped(f"gpu_type: {error}") from None


_Parsed = tuple[str, str, dict[str, float | str | bool], float]


def _product(row: Mapping[str, str]) -> _Parsed:
    """A matrix product by columns."""
    cells = Cells(row)
    m, n, k = (float(cells.need(name)) for name in ("m", "n", "k"))
    batch = float(cells.need("batch")) if row.get("batch") else 1.0
    precision = _precision(row.get("dtype") or row.get("in_dtype") or "")
    layout = row.get("layout", "").lower() or "tn"
    if layout not in LAYOUTS:
        raise RowSkipped(f"layout '{shown(layout)}' is not one of {', '.join(LAYOUTS)}")
    value = {"fp8": 1, "fp32": 4, "tf32": 4}.get(precision, 2)
    out = row.get("out_dtype") or ("" if precision != "fp8" else "bf16")
    shape: dict[str, float | str | bool] = {
        "m": m,
        "n": n,
        "k": k,
        "batch": batch,
        "value": value,
        "layout": layout,
        "out_value": {"": value, "fp32": 4}.get(out, 2),
        "accumulate": row.get("accumulate", "").lower() == "true",
    }
    return "gemm", precision, shape, 2.0 * m * n * k * batch


def _grouped(key: Mapping[str, str]) -> _Parsed:
    """A grouped product by its shape_key."""
    cells = Cells(key)
    experts, tokens, n, k = (float(cells.need(name)) for name in ("ng", "M", "N", "K"))
    stage = key.get("stage", "")
    if stage not in STAGES:
        raise RowSkipped(f"stage '{shown(stage)}' is not one of {', '.join(STAGES)}")
    wide = key.get("main_grad_dtype") == "fp32"
    shape: dict[str, float | str | bool] = {
        "experts": experts,
        "tokens": tokens,
        "n": n,
        "k": k,
        "weight_gradient": stage == "bwd_grad_w",
        "gradient_value": 4 if wide else 2,
    }
    flops = 2.0 * experts * tokens * n * k
    return "grouped_gemm", _precision(key.get("dtype", "")), shape, flops


def _attention(op: str, key: Mapping[str, str]) -> _Parsed:
    """Attention by its shape_key.

    The table counts the full square of scores, the kernel is causal: efficiencies pass 1 otherwise.
    """
    cells = Cells(key)
    names = ("batch", "seq_len", "head_num", "qk_head_dim", "v_head_dim")
    batch, length, heads, wide_qk, wide_v = (float(cells.need(name)) for name in names)
    backward = ATTENTION[op] == "attention_backward"
    square = 2.0 * batch * heads * length**2 * (wide_qk + wide_v)
    square *= FLASH_BACKWARD if backward else 1.0
    shape: dict[str, float | str | bool] = {
        "flops": 0.5 * square,
        "seq_len": length,
        "head_dim": wide_qk,
        "backward": backward,
    }
    return ATTENTION[op], _precision(key.get("dtype", "bf16")), shape, square


def _seconds(row: Mapping[str, str], flops: float) -> float:
    """Measured seconds: a time as it stands, else FLOPs over a rate or over a share of a peak."""
    cells = Cells(row)
    given: dict[str, Callable[[float], float]] = {
        "time_us": lambda x: x * 1e-6,
        "derived_time_us": lambda x: x * 1e-6,
        "efficiency": lambda x: flops / (x * 1e12 * cells.needed("peak_tflops_used")),
        "achieved_tflops": lambda x: flops / (x * 1e12),
    }
    for name, seconds in given.items():
        if row.get(name):
            return seconds(cells.needed(name))
    raise RowSkipped(f"no time: {', '.join(given)} are blank")


def _pairs(text: str) -> dict[str, str]:
    """`a=1, b=x` as a mapping."""
    parts = (part.partition("=") for part in text.split(",") if "=" in part)
    return {name.strip(): value.strip() for name, _, value in parts}


def _precision(text: str) -> str:
    word = (text.lower().split() or [""])[0]
    precision = _PRECISIONS.get(word, word)
    if precision not in ("fp32", "tf32", "fp16", "bf16", "fp8"):
        raise RowSkipped(f"dtype '{shown(text)}' is not one of fp32, tf32, fp16, bf16, fp8")
    return precision
