"""Saves the training state of all ranks and goes on from it, with torch's distributed checkpoint.

What is saved, by names that mean the same on every rank:

    model/<parameter>                    each stage's, under its name in the whole model
    master/<share>                       fp32 copies: of bf16 weights, or of a share of ZeRO-1
    exp_avg/.. exp_avg_sq/.. step/..     what AdamW keeps of each of those that it updates
    rng/<rank>/<device>                  what dropout draws from next
    losses                               of every step so far; their number is the step

A tensor that several ranks hold is written by one of them, a split one in its parts. The position
in the data is the step (see `executor.training.text`).
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import checkpoint as dcp
from torch.distributed.checkpoint import CheckpointException

from executor.checkpoint.folder import (
    METADATA,
    clean,
    final_folder,
    part_folder,
    prune,
    publish,
    start_from,
    step_of,
)
from executor.checkpoint.reader import Reader
from executor.checkpoint.record import check_sum, checksum, read_record, write_record
from executor.devices.process_group import gathered
from executor.faults.reports import HERE, PeerError, writing
from executor.training.trainer import Trainer
from parsim.errors import InputError

OPTION = "--checkpoints"


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
        losses = torch.zeros(step_of(resumed), dtype=torch.float64)
        state = {**training_state(trainer), "losses": losses}
        with _one_rank_speaks():
            dcp.load(state, storage_reader=Reader(resumed))
        torch.set_rng_state(state[f"rng/{dist.get_rank()}/cpu"])
        drawn = state.get(f"rng/{dist.get_rank()}/cuda")
        if drawn is not None:
            torch.cuda.set_rng_state(drawn)
        return tuple(losses.tolist())

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
        step = len(losses)
        part = part_folder(self.root, step, self.attempt)
        state = {**training_state(trainer), "losses": torch.tensor(losses, dtype=torch.float64)}
        try:
            with writing(part, OPTION), _one_rank_speaks():
                dcp.save(state, storage_writer=_Writer(part))
            files = _checksums(part)
            if dist.get_rank() == 0:
                with writing(part, OPTION):
                    write_record(part, self.trained, files)
                    publish(part, final_folder(self.root, step))
                    prune(self.root)
        except (InputError, PeerError):
            if dist.get_rank() == 0:
                shutil.rmtree(part, ignore_errors=True)
            raise
        dist.barrier()  # a rank that goes on may rely on it

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


def training_state(trainer: Trainer) -> dict[str, Tensor]:
    """The tensors that a rank's next steps depend on, to be read or to be written in place."""
    state = {
        f"model/{name}": parameter.detach()
        for replica in trainer.replicas
        for name, parameter in replica.stage.named_parameters()
    }
    state.update(trainer.optimizer.named_state())
    state[f"rng/{dist.get_rank()}/cpu"] = torch.get_rng_state()
    if trainer.mesh.device_type == "cuda":
        state[f"rng/{dist.get_rank()}/cuda"] = torch.cuda.get_rng_state()
    return state


class _Writer(dcp.FileSystemWriter):  # type: ignore[misc]  # torch has no types here
    """Torch's writer of files, which raises what the disk said; torch names a broken archive."""

    def write_data(self, *args: object) -> object:
        """Write this rank's file."""
        try:
            return super().write_data(*args)
        except Exception as error:
            raise _first_cause(error) from None


def _first_cause(error: BaseException) -> BaseException:
    """The error of the operating system that another one came from, or the error itself."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, OSError):
        cause = cause.__cause__ or cause.__context__
    return cause or error


def _checksums(part: Path) -> dict[str, list[int]]:
    """Size and checksum of every file of a checkpoint, each read by the rank that wrote it."""
    rank = dist.get_rank()
    mine = sorted(path.name for path in part.glob(f"__{rank}_*"))
    mine += [METADATA] if rank == 0 else []
    every = gathered({name: checksum(part / name) for name in mine})
    return {name: sums for of_rank in every for name, sums in of_rank.items()}


def _read_damage(folder: Path) -> str:
    """What ranks that read the files of a checkpoint in turn found wrong; empty if nothing."""
    files = read_record(folder)["files"]
    mine = sorted(files)[dist.get_rank() :: dist.get_world_size()]
    damages = (check_sum(folder, name, files[name]) for name in mine)
    damaged = gathered([damage for damage in damages if damage])
    return next((damage for rows in damaged for damage in rows), "")


@contextmanager
def _one_rank_speaks() -> Iterator[None]:
    """Torch raises the failure of one rank on all of them: here only on that one.

    Raises:
        PeerError: it was another rank's.
    """
    try:
        yield
    except CheckpointException as error:
        rank, failures = dist.get_rank(), error.failures
        if rank not in failures:
            ranks = ", ".join(map(str, sorted(failures)))
            raise PeerError(f"rank {ranks} failed at the checkpoint") from None
        raise failures[rank][0] from None
