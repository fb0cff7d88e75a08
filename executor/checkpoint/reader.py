"""Reads a checkpoint of torch without running what somebody may have written into it.

Torch keeps a checkpoint's table of contents, `.metadata`, as a pickle, and a pickle can call any
function of any module. Here it may only make what torch's writer puts into that file, and the
table may only list tensors: entries of other kinds torch would unpickle without any check
(`DefaultLoadPlanner.load_bytes`). Tensors themselves torch reads with `weights_only`.
"""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any, Final

import torch
from torch.distributed import checkpoint as dcp
from torch.distributed.checkpoint.metadata import (
    Metadata,
    MetadataIndex,
    StorageMeta,
    TensorStorageMetadata,
)

from executor.checkpoint.folder import METADATA
from executor.checkpoint.record import damaged
from parsim.errors import shown

_CONTENTS: Final = "torch.distributed.checkpoint.metadata"
_ALLOWED: Final = frozenset(
    {
        *((_CONTENTS, name) for name in ("Metadata", "MetadataIndex", "StorageMeta")),
        *((_CONTENTS, name) for name in ("TensorStorageMetadata", "ChunkStorageMetadata")),
        *((_CONTENTS, name) for name in ("TensorProperties", "_MEM_FORMAT_ENCODING")),
        ("torch.distributed.checkpoint.filesystem", "_StorageInfo"),
        ("torch", "Size"),
        ("torch.serialization", "_get_layout"),
        ("pathlib", "PosixPath"),
        ("pathlib._local", "PosixPath"),  # Python 3.13
    }
)
"""What `.metadata` of a training state is made of, beside torch's dtypes."""


class Reader(dcp.FileSystemReader):  # type: ignore[misc]  # torch has no types here
    """Torch's reader of files, with a table of contents that cannot run anything.

    Raises:
        InputError: the table holds what no checkpoint of a training state has.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._contents = _read_contents(folder / METADATA)

    def read_metadata(self, *_: object, **__: object) -> Metadata:
        """The table of contents."""
        self._contents.storage_meta = self._contents.storage_meta or StorageMeta()
        self._contents.storage_meta.load_id = self.load_id
        return self._contents


def _read_contents(path: Path) -> Metadata:
    """A table of contents, checked."""
    try:
        with path.open("rb") as file:
            contents = _Unpickler(file).load()
        _check(contents)
    except Exception as wrong:  # a pickle can be broken in many ways
        raise damaged(path, f"it cannot be read safely ({shown(wrong)})") from None
    return contents


class _Unpickler(pickle.Unpickler):
    """Makes tables of contents and nothing else."""

    def find_class(self, module: str, name: str) -> Any:  # noqa: ANN401 - a class or function
        """What a pickle names, if it is one of a few harmless things."""
        if module == "torch" and isinstance(getattr(torch, name, None), torch.dtype):
            return getattr(torch, name)
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"{module}.{name} is not part of a checkpoint")
        return super().find_class(module, name)


def _check(metadata: object) -> None:
    """Refuse a table that lists anything but tensors in files beside it."""
    if not isinstance(metadata, Metadata):
        raise TypeError("no table of contents")
    for name, entry in metadata.state_dict_metadata.items():
        if not isinstance(entry, TensorStorageMetadata):
            raise TypeError(f"{name} is no tensor")
    for index, where in metadata.storage_data.items():
        file = where.relative_path
        if not isinstance(index, MetadataIndex) or Path(file).name != file:
            raise TypeError(f"{file} is not beside it")
