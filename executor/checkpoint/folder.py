"""The folder of a run's checkpoints: what is whole, what may be gone on from, what is deleted.

    DIR/step-00000010/           plan.json  tensors.json  rank-00000.safetensors  ..
    DIR/.step-00000020.part0/    being written, or left by a run that was killed meanwhile

A checkpoint is written under a hidden name and renamed when every file is on disk, so a folder
named `step-` is whole. Needs no torch.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from executor.checkpoint.record import PLAN, DamagedCheckpoint, check_same, check_sizes, read_record
from parsim.errors import InputError

KEEP = 2
"""Checkpoints kept: the newest, and the one before it for when a disk has damaged the newest."""

TENSORS = "tensors.json"
"""Which part of which tensor is in which file (see `executor.checkpoint.tensors`)."""


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
    steps = [
        path
        for path in root.glob("step-*")
        if path.name[5:].isdigit() and all((path / name).is_file() for name in (PLAN, TENSORS))
    ]
    return sorted(steps, key=step_of)


def start_from(
    root: Path,
    trained: Mapping[str, Any],
    *,
    resume: bool,
    restarted: bool,
    every: int,
    last_step: int,
    damages: Mapping[Path, str] | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> Path | None:
    """The checkpoint to go on from; None to begin at step 0.

    `trained` is what is trained now, see `what_is_trained`. The user wants to go on (`resume`), or
    torchrun has started the ranks again after a fault (`restarted`). Checkpoints are written
    `every` so many steps, 0 is never; training ends at `last_step`. A damaged one is stepped over,
    and `tell` called with a note; `damages` are those known already.

    Raises:
        InputError: there is none to resume from, or it is of something else or past the end; or a
            new run would write between the checkpoints of an earlier one.
    """
    saved = whole(root)
    _check_wanted(root, saved, resume=resume, writes=bool(every) and not (resume or restarted))
    if not saved or not (resume or (restarted and every)):
        return None
    newest = _newest_sound(saved, damages or {}, tell, resume=resume)
    if newest is None:
        return None
    check_same(newest, read_record(newest), trained)
    if step_of(newest) > last_step:
        raise InputError(
            f"checkpoint {newest} is past the {last_step} steps asked for with --warmup and "
            f"--steps together; ask for more --steps"
        )
    return newest


def _check_wanted(root: Path, saved: Sequence[Path], *, resume: bool, writes: bool) -> None:
    """Refuse to resume from nothing, and a new run that `writes` between older checkpoints."""
    if resume and not saved:
        raise InputError(
            f"--resume: there is no whole checkpoint in {root}; name the folder of an earlier run "
            f"with --checkpoints, or leave --resume out to begin at step 0"
        )
    if saved and writes:
        raise InputError(
            f"{root} holds checkpoints of an earlier run, the newest {saved[-1].name}; "
            f"go on with --resume, or choose another --checkpoints folder"
        )


def _newest_sound(
    saved: Sequence[Path], damages: Mapping[Path, str], tell: Callable[[str], None], *, resume: bool
) -> Path | None:
    """The newest checkpoint that is not damaged; None where a restart finds none."""
    passed: list[str] = []
    for folder in reversed(saved):
        damage = damages.get(folder) or _damage(folder)
        if not damage:
            for text in passed:
                tell(f"{text}; training goes on from {folder.name} instead")
            return folder
        passed.append(damage)
    if resume:
        raise InputError(
            f"{passed[0]}; no checkpoint before it is whole: name another folder with "
            f"--checkpoints, or leave --resume out to begin at step 0"
        )
    tell(f"{passed[0]}; no checkpoint before it is whole: training begins again at step 0")
    return None


def _damage(folder: Path) -> str:
    """What is wrong with a checkpoint's record or the sizes of its files; empty if nothing is."""
    try:
        check_sizes(folder, read_record(folder))
    except DamagedCheckpoint as damage:
        return str(damage)
    return ""


def publish(part: Path, final: Path) -> None:
    """Give a written checkpoint its name, on disk too."""
    if final.exists():  # not whole or damaged, or it would have been gone on from
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
    for folder in root.glob(".step-*"):
        shutil.rmtree(folder, ignore_errors=True)
