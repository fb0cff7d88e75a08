"""The safetensors format: a length, a table of contents as JSON, and the values.

    8 bytes   length n of the table, little-endian
    n bytes   {"name": {"dtype": "F32", "shape": [..], "data_offsets": [begin, end]}, ..}
    the rest  values, row-major, little-endian; offsets count from here

Source: github.com/huggingface/safetensors, section Format. Nothing in such a file can run.
"""

from __future__ import annotations

import json
import math
import mmap
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import torch
from torch import Tensor

from parsim.errors import InputError, shown

DTYPES: Mapping[str, torch.dtype] = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "U8": torch.uint8,
}
_NAMES = {dtype: name for name, dtype in DTYPES.items()}

LONGEST = 100_000_000
"""Bytes of the longest table, as the format's own reader has it."""

Contents = dict[str, tuple[torch.dtype, tuple[int, ...]]]
"""Dtype and shape of each tensor by its name, in the order of the file."""


class File:
    """A file of tensors; they are read from disk when their values are.

    Raises:
        InputError: it is no such file, or cut short.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with _open(path) as file:
            self._mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
        try:
            length = int.from_bytes(self._mapped[:8], "little")
            if not 2 <= length <= min(LONGEST, len(self._mapped) - 8):
                raise ValueError(f"a table of contents of {length} bytes")
            table = json.loads(self._mapped[8 : 8 + length])
            self._first = 8 + length
            self._table = {name: self._entry(e) for name, e in table.items() if name[:2] != "__"}
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise InputError(
                f"{path} is no whole safetensors file: {shown(error)}; fetch or write it again"
            ) from None

    def _entry(self, entry: Mapping[str, Any]) -> tuple[torch.dtype, tuple[int, ...], int]:
        dtype, shape, (begin, end) = DTYPES[entry["dtype"]], entry["shape"], entry["data_offsets"]
        if not all(type(size) is int and size >= 0 for size in (*shape, begin, end)):
            raise ValueError(f"shape {shape} at {begin}:{end}")
        if end - begin != math.prod(shape) * dtype.itemsize:
            raise ValueError(f"{end - begin} bytes for shape {shape} of {entry['dtype']}")
        if self._first + end > len(self._mapped):
            raise ValueError(f"values up to byte {self._first + end} of {len(self._mapped)}")
        return dtype, tuple(shape), self._first + begin

    def contents(self) -> Contents:
        """What is in it."""
        return {name: (dtype, shape) for name, (dtype, shape, _) in self._table.items()}

    def tensor(self, name: str) -> Tensor:
        """A tensor, which must not be written to."""
        dtype, shape, first = self._table[name]
        count = math.prod(shape)
        if count == 0:
            return torch.empty(shape, dtype=dtype)
        flat = torch.frombuffer(self._mapped, dtype=dtype, count=count, offset=first)
        return flat.view(shape)


def _open(path: Path) -> BinaryIO:
    try:
        file = path.open("rb")
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None
    if path.stat().st_size < 10:
        file.close()
        raise InputError(f"{path} is no whole safetensors file: it is almost empty")
    return file


def write(path: Path, contents: Contents, tensors: Iterable[Tensor]) -> None:
    """Write tensors in the order of `contents`, with its dtypes and shapes, and have them on disk.

    One tensor is asked for at a time, so that no more than one need be in memory.
    """
    table: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, (dtype, shape) in contents.items():
        begin, end = end, end + math.prod(shape) * dtype.itemsize
        table[name] = {"dtype": _NAMES[dtype], "shape": list(shape), "data_offsets": [begin, end]}
    words = json.dumps(table).encode()
    words += b" " * (-len(words) % 8)  # values are aligned
    with path.open("wb") as file:
        file.write(len(words).to_bytes(8, "little") + words)
        for (name, (dtype, shape)), tensor in zip(contents.items(), tensors, strict=True):
            if (tensor.dtype, tuple(tensor.shape)) != (dtype, shape):
                raise ValueError(f"{name} is {tensor.dtype} {tuple(tensor.shape)}")
            values = tensor.detach().cpu().contiguous()
            file.write(values.view(-1).view(torch.uint8).numpy())
        file.flush()
        os.fsync(file.fileno())
