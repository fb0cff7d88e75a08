"""What a checkpoint says of itself in `plan.json`: what was trained, and what its files hold.

Each file has a checksum here. Training may go on under another plan, but with the same global
batch. Needs no torch.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Mapping
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

from parsim.errors import InputError, shown
from parsim.files import read_json
from parsim.model.spec import TransformerSpec
from parsim.plan import Plan
from parsim.units import MIB

FORMAT = 2
"""Version of the layout; another one is refused."""


class DamagedCheckpoint(InputError):
    """A file of a checkpoint is not as it was written; the checkpoint before it may be."""


PLAN = "plan.json"
_BLOCK = MIB  # bytes read at a time for a checksum


def what_is_trained(
    plan: Plan,
    model: Mapping[str, Any],
    seed: int,
    tokens: bytes,
    *,
    optimizer: str = "adamw",
    held_out: bool = False,
) -> dict[str, Any]:
    """What a checkpoint belongs to, as plain data: plan, batch, model, seed, the text's tokens.

    Its `optimizer` is there by name; `held_out` says that the text's end was kept from training,
    for evaluations.
    """
    record = {
        "label": plan.label(),
        "plan": plan.to_json(),
        "batch": plan.global_batch_size,
        "model": model,
        "seed": seed,
        "optimizer": optimizer,
        "held_out": held_out,
        "data": f"{len(tokens)} bytes of tokens, crc32 {zlib.crc32(tokens):08x}",
    }
    compared: dict[str, Any] = json.loads(json.dumps(record))
    return compared


def write_record(folder: Path, trained: Mapping[str, Any], files: Mapping[str, list[int]]) -> None:
    """Write `plan.json` and have it on disk; the last file of a checkpoint."""
    document = {"format": FORMAT, **trained, "files": dict(sorted(files.items()))}
    with (folder / PLAN).open("w", encoding="utf-8") as file:
        file.write(json.dumps(document, indent=1) + "\n")
        file.flush()
        os.fsync(file.fileno())


def read_record(folder: Path) -> dict[str, Any]:
    """Read the `plan.json` of a checkpoint.

    Raises:
        DamagedCheckpoint: it cannot be read.
        InputError: it is of another version.
    """
    path = folder / PLAN
    try:
        document: dict[str, Any] = read_json(path)
        version = document["format"]
        _check_files(document["files"])
    except (InputError, TypeError, ValueError, KeyError, AttributeError) as error:
        raise damaged(path, f"it cannot be read ({type(error).__name__})") from None
    if version != FORMAT:
        raise InputError(
            f"{path}: checkpoints of format {shown(version)} cannot be read; allowed: {FORMAT}; "
            f"train again, or use the version of parsim that wrote it"
        )
    return document


def _check_files(files: Mapping[str, Any]) -> None:
    """Refuse a list of files that are not beside it, or without size and checksum."""
    for name, (size, checksum) in files.items():
        if Path(name).name != name or not isinstance(size, int) or not isinstance(checksum, int):
            raise ValueError(name)


def check_same(folder: Path, record: Mapping[str, Any], trained: Mapping[str, Any]) -> None:
    """Refuse a checkpoint of another global batch, model, seed, optimizer or text.

    One from before a field was there is not held against it.

    Raises:
        InputError: naming what differs.
    """
    ways = {
        "batch": "training.global_batch_size",
        "model": "model",
        "data": "--data and --tokenizer, and with --eval-every or without as then",
    }
    _check_held_out(folder, record, trained)
    for what in ("batch", "model", "seed", "optimizer", "data"):
        theirs, ours = record.get(what, trained[what]), trained[what]
        if what == "model":
            theirs, ours = _distinct(theirs), _distinct(ours)
        if theirs != ours:
            pair, way = _difference(what, record, trained), ways.get(what, f"--{what}")
            raise InputError(
                f"checkpoint {folder} was written by {what} {pair[0]}, this is {pair[1]}; "
                f"resume with the same {way}, or choose another --checkpoints folder"
            )


def _check_held_out(folder: Path, record: Mapping[str, Any], trained: Mapping[str, Any]) -> None:
    """Refuse a checkpoint of the same text, of which another part was trained on."""
    then = record.get("held_out", trained["held_out"])
    if then != trained["held_out"]:
        kept, way = ("kept", "with") if then else ("did not keep", "without")
        raise InputError(
            f"checkpoint {folder} was written by a run that {kept} the last twentieth of its text "
            f"for evaluations; resume {way} --eval-every, or choose another --checkpoints folder"
        )


_DEFAULTS = {x.name: x.default for x in fields(TransformerSpec) if x.default is not MISSING}
_USUAL: dict[str, Any] = json.loads(json.dumps(_DEFAULTS))
"""What a model's fields are where nothing is said."""

_UNKNOWN = object()


def same_plan(first: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two plans say the same, be it that one is from before a field was there."""
    usual = json.loads(json.dumps(Plan().to_json()))
    names = {*first, *other}
    return all(
        first.get(name, usual.get(name, _UNKNOWN)) == other.get(name, usual.get(name, _UNKNOWN))
        for name in names
    )


def _distinct(model: Any) -> Any:  # noqa: ANN401 - a part of a JSON document
    """A model's numbers but for those at their default: what it is called does not matter.

    So a checkpoint from before a field was there is of the same model while the field says nothing.
    """
    if not isinstance(model, dict):
        return model
    described = {name: value for name, value in model.items() if name != "name"}
    return {name: value for name, value in described.items() if value != _USUAL.get(name, _UNKNOWN)}


def _difference(
    what: str, record: Mapping[str, Any], trained: Mapping[str, Any]
) -> tuple[str, str]:
    """Both sides of a difference, or the fields of a model that differ."""
    if not isinstance(record.get(what), dict):
        return str(record.get(what)), str(trained[what])
    theirs, ours = (_distinct(side[what]) for side in (record, trained))
    names = sorted(name for name in {*theirs, *ours} if theirs.get(name) != ours.get(name))
    first, second = (
        ", ".join(f"{name}={_short(side.get(name, _USUAL.get(name)))}" for name in names)
        for side in (theirs, ours)
    )
    return f"'{record[what].get('name', trained['label'])}' with {first}", f"with {second}"


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= 40 and text.isprintable() else f"{text[:20]!r}..."


def check_sizes(folder: Path, record: Mapping[str, Any]) -> None:
    """Refuse a checkpoint of which a file is missing or cut short.

    Raises:
        DamagedCheckpoint: naming the first such file.
    """
    for name, (size, _) in record["files"].items():
        path = folder / name
        present = path.stat().st_size if path.is_file() else None
        if present != size:
            lack = "it is missing" if present is None else f"{present} of {size} bytes"
            raise damaged(path, lack)


def check_sum(folder: Path, name: str, expected: list[int]) -> str | None:
    """Say what is wrong with one file of a checkpoint; None if its contents are as written."""
    try:
        if checksum(folder / name) == expected:
            return None
        return str(damaged(folder / name, "its checksum is wrong"))
    except OSError as error:
        return str(damaged(folder / name, str(error.strerror)))


def damaged(path: Path, what: str) -> DamagedCheckpoint:
    """The error that names a damaged file of a checkpoint."""
    return DamagedCheckpoint(f"checkpoint file {path} is damaged: {what}")


def checksum(path: Path) -> list[int]:
    """Size and CRC-32 of a file."""
    size = value = 0
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            size, value = size + len(block), zlib.crc32(block, value)
    return [size, value]
