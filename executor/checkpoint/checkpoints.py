"""Saves the training state of all ranks and goes on from it, under the same plan or another one.

What is saved says `executor.checkpoint.pieces`, how it lies on disk `executor.checkpoint.tensors`.
The position in the data is the step (see `executor.training.samples`). Under another plan weights,
states of the optimizer and losses are the same; dropout, whose masks hang on the placement, draws
others.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from executor.checkpoint.folder import (
    TENSORS,
    clean,
    final_folder,
    part_folder,
    prune,
    publish,
    start_from,
    step_of,
)
from executor.checkpoint.pieces import (
    Piece,
    flat_piece,
    generator_states,
    numbers_of,
    read_pieces,
    set_generators,
    set_numbers,
    written_pieces,
)
from executor.checkpoint.record import check_sum, checksum, read_record, same_plan, write_record
from executor.checkpoint.tensors import Key, Pieces, file_of, shared_out, write_pieces, write_table
from executor.devices.all_ranks import gathered
from executor.faults.reports import HERE, PeerError, writing
from executor.model.module import seed_dropout
from executor.training.trainer import Trainer
from parsim.errors import InputError

OPTION = "--checkpoints"

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoints:
    """The checkpoints of a run, on every rank; `every` 0 writes none.

    `trained` is `what_is_trained`. `attempt` counts how often the ranks were started again; it
    is the same on all ranks. `last_step` is where the training ends. `tell` gets notes, on rank 0.
    """

    root: Path
    every: int
    resume: bool
    attempt: int
    trained: Mapping[str, Any]
    last_step: int
    tell: Callable[[str], None] = lambda _: None

    def restore(self, trainer: Trainer) -> tuple[float, ...]:
        """Load what there is to go on from; the losses of the steps before, none at the start.

        Every rank must call it, before the first step.

        Raises:
            InputError: there is nothing to go on from, it is of something else, or damaged.
        """
        resumed = self._sound()
        if resumed is None:
            return ()
        losses = flat_piece("losses", torch.zeros(step_of(resumed), dtype=torch.float64))
        return _together(lambda: self._read(resumed, trainer, losses))

    def _read(self, folder: Path, trainer: Trainer, losses: Piece) -> tuple[float, ...]:
        stored, drawn = Pieces(folder), generator_states(torch.device(trainer.mesh.device_type))
        for piece in (*read_pieces(trainer), losses):
            stored.read(piece)
        trainer.optimizer.reload()
        set_numbers(trainer.optimizer, stored.numbers)
        record = read_record(folder)
        same = same_plan(record["plan"], self.trained["plan"])
        if same and all(piece.name in stored for piece in drawn):
            for piece in drawn:
                stored.read(piece)
            set_generators(torch.device(trainer.mesh.device_type), drawn)
        else:  # masks of another placement, and none that were drawn before
            seed_dropout(torch.initial_seed(), step_of(folder))
        if not same and dist.get_rank() == 0:
            self.tell(
                f"checkpoint {folder.name} was written by plan '{record.get('label')}'; training "
                f"goes on under '{self.trained['label']}', where dropout draws other masks"
            )
        return tuple(losses.values.tolist())

    def after_step(self, trainer: Trainer, losses: Sequence[float]) -> None:
        """Write a checkpoint if it is time to, `losses` being those of all steps so far."""
        if self.every and len(losses) % self.every == 0:
            HERE.enter("checkpoint", len(losses))
            self.save(trainer, losses)

    def save(self, trainer: Trainer, losses: Sequence[float]) -> None:
        """Write a checkpoint, whole or not at all; every rank must call it.

        Raises:
            InputError: this rank cannot write, for instance because the disk is full.
            PeerError: another rank could not.
        """
        part = part_folder(self.root, len(losses), self.attempt)
        try:
            self._write_parts(trainer, losses, part)
            files = _checksums(part)
            if dist.get_rank() == 0:
                with writing(part, OPTION):
                    write_record(part, self.trained, files)
                    publish(part, final_folder(self.root, len(losses)))
                    prune(self.root)
        except (InputError, PeerError):
            # by every rank: once one has ended with its error, torchrun ends the others
            shutil.rmtree(part, ignore_errors=True)
            raise
        dist.barrier()  # a rank that goes on may rely on it

    def _write_parts(self, trainer: Trainer, losses: Sequence[float], part: Path) -> None:
        """Write the pieces of all ranks, and on rank 0 the table of who wrote which."""
        pieces = [
            *written_pieces(trainer),
            *generator_states(torch.device(trainer.mesh.device_type)),
            flat_piece("losses", torch.tensor(losses, dtype=torch.float64)),
        ]
        writers, numbers = shared_out(pieces), numbers_of(trainer.optimizer)
        with writing(part, OPTION):
            _together(lambda: _write(part, pieces, writers))
        if dist.get_rank() == 0:
            with writing(part, OPTION):
                write_table(part, writers, {"step": len(losses), **numbers})

    def _sound(self) -> Path | None:
        """The checkpoint to go on from, every file of it read; the same on every rank."""
        if dist.get_rank() == 0:
            clean(self.root)
        damages: dict[Path, str] = {}
        while True:
            chosen = [self.start(damages) if dist.get_rank() == 0 else None]
            dist.broadcast_object_list(chosen, src=0)
            folder = chosen[0]
            damage = _read_damage(folder) if folder else ""
            if not (folder and damage):
                return folder
            damages[folder] = damage

    def start(self, damages: Mapping[Path, str] | None = None) -> Path | None:
        """The checkpoint to go on from but for those with `damages`; None to begin at step 0.

        Raises:
            InputError: see `start_from`.
        """
        return start_from(
            self.root,
            self.trained,
            resume=self.resume,
            restarted=self.attempt > 0,
            every=self.every,
            last_step=self.last_step,
            damages=damages,
            tell=self.tell,
        )


def _write(part: Path, pieces: Sequence[Piece], writers: Mapping[Key, int]) -> None:
    part.mkdir(parents=True, exist_ok=True)
    write_pieces(part, pieces, writers)


def _checksums(part: Path) -> dict[str, list[int]]:
    """Size and checksum of every file of a checkpoint, each read by the rank that wrote it."""
    rank = dist.get_rank()
    mine = [file_of(rank), *([TENSORS] if rank == 0 else [])]
    every = gathered({name: checksum(part / name) for name in mine if (part / name).exists()})
    return {name: sums for of_rank in every for name, sums in of_rank.items()}


def _read_damage(folder: Path) -> str:
    """What ranks that read the files of a checkpoint in turn found wrong; empty if nothing."""
    files = read_record(folder)["files"]
    mine = sorted(files)[dist.get_rank() :: dist.get_world_size()]
    damages = (check_sum(folder, name, files[name]) for name in mine)
    damaged = gathered([damage for damage in damages if damage])
    return next((damage for rows in damaged for damage in rows), "")


def _together(act: Callable[[], T]) -> T:
    """What an act of every rank gives; a failure is raised where it happened.

    Raises:
        PeerError: it was another rank's.
    """
    error: Exception | None = None
    try:
        result = act()
    except (InputError, OSError) as failure:
        error = failure
    failed = [rank for rank, fails in enumerate(gathered(error is not None)) if fails]
    if error is not None:
        raise error
    if failed:
        ranks = ", ".join(map(str, failed))
        raise PeerError(f"rank {ranks} failed at the checkpoint")
    return result
