"""A folder of a published model as the first values of a stage's parameters.

DIR/config.json                       what model it is (optional, then not compared)
DIR/model.safetensors                 all tensors, or
DIR/model.safetensors.index.json      in which file each tensor is
DIR/model-00001-of-00002.safetensors  ..
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path

import torch
from torch import Tensor

from executor.model.adapters import is_adapters
from executor.model.first_values import OUTPUT_TABLE, TOKEN_TABLE, first_values
from executor.model.module import build_model
from executor.weights.family_names import FAMILIES
from executor.weights.names import Theirs, also_called, theirs
from executor.weights.safetensors import File
from parsim.errors import InputError, ModelError, shown
from parsim.files import read_json
from parsim.model.config.families import unlike_note
from parsim.model.config.file import Config, read_config
from parsim.model.huggingface import spec_from_config
from parsim.model.spec import TransformerSpec

ONE_FILE = "model.safetensors"
INDEX = "model.safetensors.index.json"
CONFIG = "config.json"

_MAY_DIFFER = frozenset(
    (
        *("name", "seq_len", "padded_vocab_size", "fused_attention", "dropout", "head", "pooler"),
        *("router_aux_loss_coef", "sample_length", "lora_rank", "lora_targets", "modules_to_save"),
    )
)
"""What of a model changes neither its weights' shapes nor what they mean; a head that is not there
is missed by name."""

WORD_ROWS = (TOKEN_TABLE, OUTPUT_TABLE, "head.logits.bias")
"""Parameters with a row for each word, some of which may be padding."""


class Published:
    """Values of parameters by name and shape, as `build_stage` asks for them.

    Raises:
        InputError: there is no whole model of this spec in the folder.
    """

    def __init__(self, folder: Path, spec: TransformerSpec) -> None:
        self.folder, self.spec = folder, spec
        self._files = _files(folder)
        self._kind = _kind(folder)
        self._where = {name: file for file in self._files for name in file.contents()}

    def check(self) -> None:
        """Refuse a folder that is of another model, or lacks a parameter of this one.

        Raises:
            InputError: naming what differs or what is missing.
        """
        _check_config(self.folder, self.spec)
        model = build_model(self.spec, device="meta")
        for name, parameter in model.named_parameters():
            if is_adapters(name):
                continue
            for part, shape in parts_of(name, tuple(parameter.shape)):
                self._check_shape(part, shape)

    def _check_shape(self, ours: str, shape: tuple[int, ...]) -> None:
        origin, name = self._origin(ours)
        _, stored = self._where[name].contents()[name]
        expected = stored_shape(origin, ours, shape, self.spec)
        if stored != expected:
            raise InputError(
                f"--init-from {self.folder}: {name} has shape {list(stored)}, but {ours} of "
                f"{self.spec.name} needs {list(expected)}; run the model of that folder "
                f"(model.config: {self.folder})"
            )

    def _origin(self, ours: str) -> tuple[Theirs, str]:
        """Where a parameter is, and the name it has in these files."""
        origin = theirs(self.spec, ours, self._kind)
        for name in also_called(self.spec, origin.name, self._kind):
            if name in self._where:
                return origin, name
        raise InputError(
            f"--init-from {self.folder}: there is no tensor {origin.name}, which {ours} of "
            f"{self.spec.name} needs; give the folder of a whole model of that kind"
        )

    def __call__(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """The values of a parameter, or of one expert's; adapters begin as a new model's do."""
        if is_adapters(name):
            return first_values(name, shape, seed=0)
        whole = [self._values(part, size) for part, size in parts_of(name, shape)]
        return whole[0] if len(whole) == 1 else torch.stack(whole)

    def _values(self, ours: str, shape: tuple[int, ...]) -> Tensor:
        origin, name = self._origin(ours)
        values = origin.part_of(self._where[name].tensor(name), shape[0])
        missing = shape[0] - values.shape[0] if ours in WORD_ROWS else 0
        return torch.cat((values, values.new_zeros(missing, *shape[1:]))) if missing else values


def parts_of(name: str, shape: tuple[int, ...]) -> list[tuple[str, tuple[int, ...]]]:
    """A parameter in parts that are published apart: an expert's gate and what it gates.

    Of a layer's experts (E, ..) all; of one expert (halves, ..), called by its number, itself.
    """
    path, _, last = name.rpartition(".")
    if path.endswith(".experts"):
        every = (parts_of(f"{path}.{number}.{last}", shape[1:]) for number in range(shape[0]))
        return [part for parts in every for part in parts]
    if ".experts." in path and last == "up":
        return [(f"{name}.{half}", shape[1:]) for half in range(shape[0])]
    return [(name, shape)]


def stored_shape(
    origin: Theirs, ours: str, shape: tuple[int, ...], spec: TransformerSpec
) -> tuple[int, ...]:
    """The shape that a file has, of one of our parameters: without padding of the vocabulary."""
    first = spec.vocab_size if ours in WORD_ROWS else origin.stored_rows or shape[0]
    whole = (first, *shape[1:])
    return whole[::-1] if origin.transposed else whole


def _files(folder: Path) -> list[File]:
    if (folder / INDEX).is_file():
        document = read_json(folder / INDEX)
        names = document.get("weight_map") if isinstance(document, dict) else None
        if not isinstance(names, Mapping) or not all(map(_is_beside, names.values())):
            raise InputError(f"{folder / INDEX} names no files beside it under 'weight_map'")
        return [File(folder / name) for name in dict.fromkeys(names.values())]
    if not (folder / ONE_FILE).is_file():
        raise InputError(
            f"--init-from {folder}: it holds neither {ONE_FILE} nor {INDEX}; give the folder of a "
            f"model in Hugging Face's format"
        )
    return [File(folder / ONE_FILE)]


def _is_beside(name: object) -> bool:
    return isinstance(name, str) and Path(name).name == name and name.endswith(".safetensors")


def _kind(folder: Path) -> str:
    """The family whose names a folder's tensors have; empty where that is the spec's own."""
    if not (folder / CONFIG).is_file():
        return ""
    try:
        kind = Config.open(read_config(folder)).model_type
    except ModelError:
        return ""  # `_check_config` says what is wrong
    return kind if kind in FAMILIES else ""


def _check_config(folder: Path, spec: TransformerSpec) -> None:
    """Refuse a model that differs from the config beside the weights in more than its use."""
    if not (folder / CONFIG).is_file():
        return
    known = _described(folder, spec.name)
    every = all(map(spec.has_experts, range(spec.num_layers)))
    free = _MAY_DIFFER | ({"ffn_hidden_size"} if every else set())
    unlike = [
        f"{field.name}={getattr(known, field.name)} there and {getattr(spec, field.name)} here"
        for field in fields(spec)
        if field.name not in free and getattr(known, field.name) != getattr(spec, field.name)
    ]
    if unlike:
        raise InputError(
            f"--init-from {folder}: it is another model than {shown(spec.name)}, with "
            f"{', '.join(unlike)}; run the model of that folder (model.config: {folder})"
        )


def _described(folder: Path, name: str) -> TransformerSpec:
    """The model of a folder's config, of a kind that parsim's modules compute.

    Raises:
        InputError: a config that is none, or of another kind.
    """
    try:
        config = read_config(folder)
        known = spec_from_config(config, name=name)
        otherwise = unlike_note(Config.open(config).model_type)
    except ModelError as error:
        raise InputError(f"--init-from {folder}: {error}") from None
    if otherwise:
        raise InputError(
            f"--init-from {folder}: a model of that kind is not what parsim's modules compute "
            f"({otherwise}); its weights would mean something else"
        )
    return known
