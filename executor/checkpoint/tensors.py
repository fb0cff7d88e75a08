"""Writes and reads the pieces of tensors that make up a checkpoint.

    tensors.json              {"tensors": {"weight/head.norm.weight": {"shape": [64], "pieces":
                                 [{"file": "rank-00000.safetensors", "offsets": [0],
                                   "sizes": [64], "range": [0, 64]}, ..]}, ..}, ..}
    rank-00000.safetensors    the pieces that rank 0 wrote, each flat under its tensor's name
    rank-00001.safetensors    ..

A piece that several ranks hold is written by the one of them that has least to write. What is read
need not be cut as it was written: see `executor.checkpoint.pieces`. Nothing in such files can run.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from executor.checkpoint.folder import TENSORS
from executor.checkpoint.pieces import Box, Piece, Sizes
from executor.checkpoint.record import damaged
from executor.devices.all_ranks import gathered
from executor.weights.safetensors import Contents, File, write
from parsim.errors import InputError, shown
from parsim.files import read_json

Key = tuple[str, Sizes, Box, int, int]
"""What a piece is, whoever holds it."""


def file_of(rank: int) -> str:
    """The file that a rank writes."""
    return f"rank-{rank:05d}.safetensors"


def shared_out(pieces: Iterable[Piece]) -> dict[Key, int]:
    """Which rank writes each piece of all ranks; every rank must call it, and knows the same."""
    sizes = {_key(piece): piece.values.numel() * piece.values.itemsize for piece in pieces}
    every = gathered(sizes)
    holders: dict[Key, list[int]] = {}
    for rank, keys in enumerate(every):
        for key in keys:
            holders.setdefault(key, []).append(rank)
    load = [0] * len(every)
    writers = {}
    for key, ranks in holders.items():
        writers[key] = min(ranks, key=load.__getitem__)
        load[writers[key]] += every[writers[key]][key]
    return writers


def _key(piece: Piece) -> Key:
    return piece.name, piece.whole, piece.box, piece.begin, piece.end


def write_pieces(folder: Path, pieces: Sequence[Piece], writers: Mapping[Key, int]) -> None:
    """Write those pieces that are this rank's to write, if there are any."""
    rank = dist.get_rank()
    mine = {piece.name: piece for piece in pieces if writers[_key(piece)] == rank}
    if mine:
        contents: Contents = {
            name: (p.values.dtype, (p.values.numel(),)) for name, p in mine.items()
        }
        values = (piece.values.reshape(-1) for piece in mine.values())
        write(folder / file_of(rank), contents, values)


def write_table(folder: Path, writers: Mapping[Key, int], also: Mapping[str, Any]) -> None:
    """Write what is where, and numbers beside the tensors; have it on disk."""
    tensors: dict[str, Any] = {}
    for (name, whole, box, begin, end), rank in writers.items():
        entry = tensors.setdefault(name, {"shape": whole, "pieces": []})
        where = {"file": file_of(rank), "offsets": box.offsets, "sizes": box.sizes}
        entry["pieces"].append({**where, "range": (begin, end)})
    with (folder / TENSORS).open("w", encoding="utf-8") as file:
        file.write(json.dumps({**also, "tensors": tensors}) + "\n")
        file.flush()
        os.fsync(file.fileno())


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stored:
    """A piece in a file."""

    file: str
    box: Box
    begin: int
    end: int

    @classmethod
    def of(cls, entry: Mapping[str, Any], shape: Sizes) -> _Stored:
        """Read an entry of a table.

        Raises:
            ValueError: it is no part of a tensor of that shape, or not in a file beside it.
        """
        (begin, end), file = entry["range"], str(entry["file"])
        box = Box(offsets=_sizes(entry["offsets"]), sizes=_sizes(entry["sizes"]))
        within = zip(box.offsets, box.sizes, shape, strict=True)
        inside = all(first + size <= most for first, size, most in within)
        if Path(file).name != file or not inside or not 0 <= begin < end <= box.count:
            raise ValueError(f"{shown(entry)} is no part of shape {list(shape)}")
        return cls(file=file, box=box, begin=begin, end=end)


def _sizes(values: Sequence[Any]) -> Sizes:
    if not all(type(value) is int and value >= 0 for value in values):
        raise ValueError(f"{values!r} are no sizes")
    return tuple(values)


@dataclass(slots=True)
class Pieces:
    """The tensors of a checkpoint, to be read in other pieces than they were written in.

    Raises:
        DamagedCheckpoint: its table contradicts itself.
    """

    folder: Path
    numbers: dict[str, Any] = field(init=False)
    _tensors: dict[str, tuple[Sizes, list[_Stored]]] = field(init=False)
    _files: dict[str, File] = field(default_factory=dict)

    def __post_init__(self) -> None:
        try:
            self.numbers = read_json(self.folder / TENSORS)
            table = self.numbers.pop("tensors")
            self._tensors = {name: _entry(entry) for name, entry in table.items()}
        except (InputError, TypeError, ValueError, KeyError, AttributeError) as wrong:
            raise damaged(self.folder / TENSORS, f"it cannot be read ({shown(wrong)})") from None

    def __contains__(self, name: str) -> bool:
        """Whether there is such a tensor."""
        return name in self._tensors

    def read(self, piece: Piece) -> None:
        """Overwrite the values of a piece with what was written of them.

        Raises:
            InputError: there is no such tensor, or one of another shape.
            DamagedCheckpoint: a part of it is missing.
        """
        shape, stored = self._tensors.get(piece.name, ((), []))
        if not stored:
            kind, _, parameter = piece.name.partition("/")
            raise InputError(
                f"checkpoint {self.folder} holds no {kind} of {parameter}; it was written with "
                f"another optimizer or model: resume with the same"
            )
        if shape != piece.whole:
            raise InputError(
                f"checkpoint {self.folder}: {piece.name} has shape {list(shape)}, but this plan "
                f"needs {list(piece.whole)}; resume with the same model"
            )
        piece.fill(self._box(piece.name, piece.box, stored))

    def _box(self, name: str, wanted: Box, stored: Sequence[_Stored]) -> Tensor:
        """The values of one box, put together of all that were written."""
        boxes: dict[Box, list[_Stored]] = {}
        for part in stored:
            boxes.setdefault(part.box, []).append(part)
        if wanted in boxes:
            return self._written(name, wanted, boxes[wanted])
        values, filled = None, 0
        for box, parts in boxes.items():
            common = wanted.common(box)
            if common is not None:
                whole = self._written(name, box, parts)[common[1]]
                values = whole.new_empty(wanted.sizes) if values is None else values
                values[common[0]] = whole
                filled += whole.numel()
        if values is None or filled != wanted.count:
            raise damaged(self.folder / TENSORS, f"{filled} of {wanted.count} values of {name}")
        return values

    def _written(self, name: str, box: Box, parts: Sequence[_Stored]) -> Tensor:
        """The values of a box as it was written, in one range or several."""
        if [(part.begin, part.end) for part in parts] == [(0, box.count)]:
            return self._values(name, parts[0]).view(box.sizes)
        pieces = [self._values(name, part) for part in sorted(parts, key=lambda part: part.begin)]
        values = torch.cat(pieces)
        if values.numel() != box.count:
            raise damaged(self.folder / TENSORS, f"{len(values)} of {box.count} values of {name}")
        return values.view(box.sizes)

    def _values(self, name: str, part: _Stored) -> Tensor:
        path = self.folder / part.file
        if part.file not in self._files:
            self._files[part.file] = File(path)
        file = self._files[part.file]
        _, shape = file.contents().get(name, (None, ()))
        if shape != (part.end - part.begin,):
            raise damaged(path, f"{name} has shape {list(shape)}")
        return file.tensor(name)


def _entry(entry: Mapping[str, Any]) -> tuple[Sizes, list[_Stored]]:
    shape = _sizes(entry["shape"])
    return shape, [_Stored.of(part, shape) for part in entry["pieces"]]
