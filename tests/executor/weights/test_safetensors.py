"""The safetensors format: round trips, and files that somebody has damaged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from parsim.errors import InputError

torch = pytest.importorskip("torch")

from executor.weights.safetensors import DTYPES, Contents, File, write  # noqa: E402

VALUES = torch.arange(12).view(3, 4)


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES)
def test_tensors_come_back(tmp_path: Path, dtype: Any) -> None:
    given = {
        "a": VALUES.to(dtype),
        "b.c": VALUES.t().to(dtype),
        "empty": torch.empty(0, 3).to(dtype),
    }
    contents: Contents = {
        name: (tensor.dtype, tuple(tensor.shape)) for name, tensor in given.items()
    }
    write(tmp_path / "f.safetensors", contents, given.values())
    file = File(tmp_path / "f.safetensors")
    assert file.contents() == contents
    assert all(torch.equal(file.tensor(name), tensor) for name, tensor in given.items())


def test_a_tensor_of_another_shape_is_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="a is torch"):
        write(tmp_path / "f.safetensors", {"a": (torch.float32, (3,))}, [torch.ones(4)])


def table(shape: object = (2,), offsets: object = (0, 8), dtype: object = "F32") -> bytes:
    entry = {"dtype": dtype, "shape": shape, "data_offsets": offsets}
    words = json.dumps({"a": entry}).encode()
    return len(words).to_bytes(8, "little") + words


@pytest.mark.parametrize(
    "damaged",
    [
        b"",
        b"\0" * 9,
        (10**9).to_bytes(8, "little") + b"{}" * 8,
        (4).to_bytes(8, "little") + b"[1] and more",
        (16).to_bytes(8, "little") + b"not json" * 4,
        table() + b"\0" * 7,
        table(shape=(3,)) + b"\0" * 8,
        table(shape=(-2,), offsets=(8, 0)) + b"\0" * 8,
        table(shape="22") + b"\0" * 8,
        table(offsets=(-8, 0)) + b"\0" * 8,
        table(offsets=(0,)) + b"\0" * 8,
        table(dtype="F31") + b"\0" * 8,
        table(dtype=["F32"]) + b"\0" * 8,
    ],
)
def test_damaged_files_are_refused(tmp_path: Path, damaged: bytes) -> None:
    path = tmp_path / "f.safetensors"
    path.write_bytes(damaged)
    with pytest.raises(InputError, match="is no whole safetensors file"):
        File(path)


def test_a_whole_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "f.safetensors"
    path.write_bytes(table() + torch.tensor([1.0, 2.0]).numpy().tobytes())
    assert File(path).tensor("a").tolist() == [1.0, 2.0]
