"""Writes a trained plan's weights as a folder that transformers loads; each stage is a file.

On all ranks at once: parameters that are split are put together one after the other, and the first
rank of each stage writes them. Nothing has its name before all of it is on disk.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from torch import Tensor

from executor.devices.all_ranks import gathered
from executor.faults.reports import writing
from executor.model.adapters import is_adapters, merged_with
from executor.model.first_values import OUTPUT_TABLE
from executor.model.stage import Stage
from executor.parallel.gradients.split import whole_tensor
from executor.training.trainer import Trainer
from executor.weights.names import Theirs, theirs
from executor.weights.published import CONFIG, INDEX, ONE_FILE, WORD_ROWS, parts_of, stored_shape
from executor.weights.safetensors import Contents, write
from parsim.errors import InputError
from parsim.model.config.writer import config_from_spec
from parsim.model.spec import TransformerSpec

OPTION = "--export"


def check_export(folder: Path, spec: TransformerSpec) -> None:
    """Refuse a folder that is in use, and a model that no published family is like.

    Raises:
        InputError: the folder is not empty.
        ModelError: there is no such family.
    """
    config_from_spec(spec)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"{OPTION} {folder}: it is not empty; name a new folder")


def export(trainer: Trainer, spec: TransformerSpec, folder: Path) -> None:
    """Write weights and `config.json`; every rank must call it.

    Raises:
        InputError: this rank cannot write.
    """
    stages = trainer.plan.num_stages
    at = trainer.mesh.get_coordinate()
    writes = not any(at[1:])  # on all axes but the pipeline's, the first
    written: dict[str, str] = {}
    size = 0
    indices = trainer.schedule.stages_on(at[0])
    for number, replica in zip(indices, trainer.replicas, strict=True):
        if number >= stages:
            continue  # of a second copy of the model
        tensors = StageTensors(replica.stage)
        name = ONE_FILE if stages == 1 else f"model-{number + 1:05d}-of-{stages:05d}.safetensors"
        if writes:
            contents = _write(folder / name, tensors)
            written |= dict.fromkeys(contents, name)
            size += sum(dtype.itemsize * _count(shape) for dtype, shape in contents.values())
        else:
            for _ in tensors.values():
                pass  # every rank takes part in putting tensors together
    every = gathered((written, size))
    if not any(at):
        _finish(folder, spec, every, index=stages > 1)


def _finish(
    folder: Path, spec: TransformerSpec, every: Sequence[tuple[dict[str, str], int]], *, index: bool
) -> None:
    """Write what makes a model of the files: last, so that a folder with a config is whole."""
    if index:
        places = {name: file for written, _ in every for name, file in sorted(written.items())}
        total = sum(size for _, size in every)
        table = {"metadata": {"total_size": total}, "weight_map": places}
        with writing(folder / INDEX, OPTION) as path:
            path.write_text(json.dumps(table, indent=1) + "\n", encoding="utf-8")
    with writing(folder / CONFIG, OPTION) as path:
        path.write_text(json.dumps(config_from_spec(spec), indent=2) + "\n", encoding="utf-8")


def _write(path: Path, tensors: StageTensors) -> Contents:
    """Write a stage's tensors, whole or not at all, and say which; no file where there are none."""
    contents = tensors.contents()
    if contents:
        with writing(path, OPTION):
            path.parent.mkdir(parents=True, exist_ok=True)
            part = path.with_name(f".{path.name}.part")
            write(part, contents, tensors.values())
            os.replace(part, path)
    return contents


def _count(shape: Sequence[int]) -> int:
    return int(torch.Size(shape).numel())


class StageTensors:
    """The published tensors of one stage, in the order of its parameters.

    Parts that are published as one (GPT-2's queries, keys and values) follow one another.
    """

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._spec = stage.spec
        tied = stage.spec.tied_embeddings
        self._parameters = {
            name: parameter
            for name, parameter in stage.named_parameters()
            if not (tied and name == OUTPUT_TABLE) and not is_adapters(name)
        }
        self._whole: tuple[str, Tensor] | None = None

    def contents(self) -> Contents:
        """Names, dtypes and shapes."""
        contents: Contents = {}
        for entry, ours, dtype, shape in self._parts():
            contents[entry.name] = (dtype, stored_shape(entry, ours, shape, self._spec))
        return contents

    def values(self) -> Iterator[Tensor]:
        """The tensors in that order, on the CPU; on all ranks of the stage at once."""
        joined: list[Tensor] = []
        for entry, ours, _, shape in self._parts():
            joined.append(self._ours(ours))
            if entry.is_last(shape[0]):
                yield entry.joined(joined)
                joined = []

    def _parts(self) -> Iterator[tuple[Theirs, str, torch.dtype, tuple[int, ...]]]:
        """Each part with its place, our name for it, its dtype and shape."""
        for name, parameter in self._ordered():
            for part, shape in parts_of(name, tuple(parameter.shape)):
                yield theirs(self._spec, part), part, parameter.dtype, shape

    def _ordered(self) -> Iterator[tuple[str, Tensor]]:
        """Parameters, those that are published as one together."""
        groups: dict[str, list[tuple[str, Tensor]]] = {}
        for name, parameter in self._parameters.items():
            ours = parts_of(name, tuple(parameter.shape))[0][0]
            groups.setdefault(theirs(self._spec, ours).name, []).append((name, parameter))
        for group in groups.values():
            yield from group if len(group) == 1 else sorted(group, key=self._begin)

    def _begin(self, named: tuple[str, Tensor]) -> int:
        """Where a parameter begins in the tensor that it is published in."""
        return theirs(self._spec, named[0]).begin

    def _ours(self, ours: str) -> Tensor:
        """The values of one of our parameters, put together over ranks, on the host."""
        name, picks = _parameter_of(ours)
        if self._whole is None or self._whole[0] != name:
            self._whole = name, self._merged(name).cpu()
        values = self._whole[1]
        for pick in picks:
            values = values[pick]
        return values[: self._spec.vocab_size] if ours in WORD_ROWS else values

    def _merged(self, name: str) -> Tensor:
        """A parameter put together over ranks, with what its adapter adds to it."""
        values = whole_tensor(self._parameters[name].detach())
        added = merged_with(self._stage, name, lambda part: whole_tensor(part.detach()))
        return values if added is None else values + added.to(values.dtype)


def _parameter_of(ours: str) -> tuple[str, list[int]]:
    """The parameter that a part is of, and where in it: layers.0.mlp.experts.5.up.1 -> 5, 1."""
    words = ours.split(".")
    picks = [int(word) for word in words[2:] if word.isdigit()]
    kept = [word for entry, word in enumerate(words) if entry < 2 or not word.isdigit()]
    return ".".join(kept), picks
