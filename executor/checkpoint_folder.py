"""The folder of a run's checkpoints: what is whole, what may be gone on from, what is deleted.

    DIR/step-00000010/           plan.json  .metadata  __0_0.distcp  __1_0.distcp
    DIR/.step-00000020.part0/    being written, or left by a run that was killed meanwhile

A checkpoint is written under a hidden name and renamed when every file is on disk, so a folder
named `step-` is whole. Needs no torch.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from executor.checkpoint_record import PLAN, check_same, check_sizes, read_record
from parsim.errors import InputError

KEEP = 2
"""Checkpoints kept: the newest, and the one before it for when a disk has damaged the newest."""

METADATA = ".metadata"
"""Torch's own table of contents; it is written after all other files."""


def final_folder(root: Path, step: int) -> Path:
    """Where the checkpoint lies that was taken after `step` steps."""
    return root / f"step-{step:08d}"


def part_folder(root: Path, step: int, attempt: int) -> Path:
    """Where a checkpoint lies while it is written."""
    return root / f".step-{step:08d}.part{attempt}"


def step_of(folder: Path) -> int:
    """After how many steps a checkpoint was taken."""
    return int(folder.name.removeprefix("step-"))


def whole(root: Path) -> list[Path]:
    """The whole checkpoints, oldest first."""
    found = [
        path
        for path in root.glob("step-*")
        if path.name[5:].isdigit() and all((path / name).is_file() for name in (PLAN, METADATA))
    ]
    return sorted(found, key=step_of)


def start_from(
    root: Path,
    trained: Mapping[str, Any],
    *,
    resume: bool,
    restarted: bool,
    every: int,
    last_step: int,
) -> Path | None:
    """The checkpoint to go on from; None to begin at step 0.

    Args:
        root: the folder of checkpoints.
        trained: what is trained now, see `what_is_trained`.
        resume: the user wants to go on.
        restarted: torchrun has started the ranks again after a fault.
        every: how often checkpoints are written, 0 is never.
        last_step: where training ends.

    Raises:
        InputError: there is none to resume from, or it is of something else, incomplete or past
            the end; or a new run would write between the checkpoints of an earlier one.
    """
    found = whole(root)
    if resume and not found:
        raise InputError(
            f"--resume: there is no whole checkpoint in {root}; name the folder of an earlier run "
            f"with --checkpoints, or leave --resume out to begin at step 0"
        )
    if found and every and not (resume or restarted):
        raise InputError(
            f"{root} holds checkpoints of an earlier run, the newest {found[-1].name}; "
            f"go on with --resume, or choose another --checkpoints folder"
        )
    if not found or not (resume or (restarted and every)):
        return None
    record = read_record(found[-1])
    check_same(found[-1], record, trained)
    check_sizes(found[-1], record)
    if step_of(found[-1]) > last_step:
        raise InputError(
            f"checkpoint {found[-1]} is past the {last_step} steps asked for with --warmup and "
            f"--steps together; ask for more --steps"
        )
    return found[-1]


def publish(part: Path, final: Path) -> None:
    """Give a written checkpoint its name, on disk too."""
    if final.exists():  # not whole, or it would have been gone on from
        shutil.rmtree(final)
    part.rename(final)
    folder = os.open(final.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def prune(root: Path) -> None:
    """Delete all but the newest checkpoints; hidden first, so that none is ever half there."""
    for folder in whole(root)[:-KEEP]:
        hidden = folder.with_name(f".{folder.name}.old")
        folder.rename(hidden)
        shutil.rmtree(hidden)


def clean(root: Path) -> None:
    """Delete what killed runs left unfinished."""
    for folder in _hidden(root):
        shutil.rmtree(folder, ignore_errors=True)


def _hidden(root: Path) -> Iterator[Path]:
    yield from root.glob(".step-*")
