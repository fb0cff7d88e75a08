"""From the texts of `--input` to the batch that a module's forward takes."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from executor.profiling.batch import Batch
from executor.profiling.stored import memory_of
from parsim.errors import InputError, did_you_mean, shown
from parsim.model.graph.record import INPUT

KINDS = {
    "float32": torch.float32,
    "int64": torch.int64,
    "int32": torch.int32,
    "bool": torch.bool,
}
"""Types that an input may have: values, token ids, or a mask."""

WORDS = 100
"""Token ids are below this, for every vocabulary has as many."""

Parameters = Mapping[str, inspect.Parameter]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One input as a user wrote it: the argument's name or "", sizes, and a type or None."""

    name: str
    sizes: tuple[int, ...]
    kind: torch.dtype | None = None

    def made(self, rows: int | None) -> Tensor:
        """A tensor of random values, or of ids below the `rows` of a table."""
        kind = self.kind or (torch.float32 if rows is None else torch.int64)
        if kind.is_floating_point:
            return torch.randn(self.sizes, dtype=kind)
        below = 2 if kind is torch.bool else min(WORDS, rows or WORDS)
        return torch.randint(below, self.sizes).to(kind)


def batch_of(target: str, texts: Sequence[str], model: nn.Module) -> Batch:
    """The batch that texts such as `4x16:int64` or `mask=4x16` ask for, as forward takes it.

    Without a type, what an embedding reads are token ids, and all else are values.

    Raises:
        InputError: a text is no input, or they are not what forward takes.
    """
    parameters = inspect.signature(model.forward).parameters
    asked = [_asked(text) for text in texts]
    by_position = [entry for entry in asked if not entry.name]
    by_name = {entry.name: entry for entry in asked if entry.name}
    if len(by_position) + len(by_name) < len(asked):
        raise InputError(f"{target}: an argument has two --input; give one for each")
    _check(target, parameters, len(by_position), list(by_name))
    order = [name for name in parameters if name in by_name]
    by_name = {name: by_name[name] for name in dict.fromkeys([*order, *by_name])}
    count = len(by_position)
    empty = Batch(given=(), names=tuple(_names(parameters, count, list(by_name))))
    entries = [*by_position, *by_name.values()]
    return _filled(empty, entries, _rows(model, empty, entries))


def _asked(text: str) -> Asked:
    pattern = r"(?:([A-Za-z_]\w*)=)?([1-9]\d{0,8}(?:x[1-9]\d{0,8})*)(?::(\w+))?"
    match = re.fullmatch(pattern, text)
    if match is None:
        raise InputError(
            f"--input '{shown(text)}' must be BATCHxSIZES, such as 32x3x224x224, 4x16:int64, or "
            f"mask=4x16 of one argument among several"
        )
    name, sizes, kind = match.groups()
    if kind not in (None, *KINDS):
        raise InputError(f"--input '{shown(text)}': allowed types: {', '.join(KINDS)}")
    return Asked(
        name=name or "",
        sizes=tuple(map(int, sizes.split("x"))),
        kind=None if kind is None else KINDS[kind],
    )


def _check(target: str, parameters: Parameters, count: int, named: Sequence[str]) -> None:
    """Refuse arguments that forward has not, has already, or needs as well."""
    kinds = {parameter.kind for parameter in parameters.values()}
    plain = [n for n, p in parameters.items() if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    takes = f"{target}: forward takes {', '.join(plain) or 'nothing'}"
    if count > len(plain) and inspect.Parameter.VAR_POSITIONAL not in kinds:
        raise InputError(f"{takes}; {count} --input are given")
    for name in named:
        if name in plain[:count]:
            raise InputError(f"{takes}; '{name}' is given by its place and by its name")
        if name not in plain and inspect.Parameter.VAR_KEYWORD not in kinds:
            raise InputError(f"{takes}; there is no '{shown(name)}'{did_you_mean(name, plain)}")
    needed = [name for name in plain[count:] if parameters[name].default is inspect.Parameter.empty]
    missing = [name for name in needed if name not in named]
    if missing:
        raise InputError(
            f"{takes}; no --input is given for {', '.join(missing)}: add one for each, such as "
            f"--input {missing[0]}=4x16"
        )


def _names(parameters: Parameters, count: int, named: Sequence[str]) -> Iterator[str]:
    """What a graph calls the inputs: the first one `input`, others by their arguments."""
    plain = [n for n, p in parameters.items() if p.kind is not p.VAR_POSITIONAL]
    plain += [f"input_{position}" for position in range(len(plain) + 1, count + 1)]
    for position, name in enumerate([*plain[:count], *named]):
        yield INPUT if position == 0 else f"{name}_{position + 1}" if name == INPUT else name


def _filled(empty: Batch, asked: Sequence[Asked], rows: Mapping[int, int | None]) -> Batch:
    """A batch of what is asked for; `rows` are of the table that reads an input, by its place."""
    made = [entry.made(rows.get(position)) for position, entry in enumerate(asked)]
    named = {entry.name: tensor for entry, tensor in zip(asked, made, strict=True) if entry.name}
    return replace(empty, given=tuple(made[: len(made) - len(named)]), named=named)


def _rows(model: nn.Module, empty: Batch, asked: Sequence[Asked]) -> dict[int, int | None]:
    """Rows of the table that reads each input of token ids, by its place; of values nothing.

    Those without a type are tried: first as ids, then as values but for what a table was seen to
    read, until no table reads another one.
    """
    tables = [part for part in model.modules() if isinstance(part, nn.Embedding)]
    least = min((table.num_embeddings for table in tables), default=None)
    rows: dict[int, int | None] = {n: least for n, entry in enumerate(asked) if entry.kind}
    untyped = [position for position, entry in enumerate(asked) if entry.kind is None]
    tried, ids = None, set(untyped) if tables else set()
    while ids != tried:
        trial = _filled(empty, asked, rows | dict.fromkeys(ids, 1))
        read = _read_by(tables, model, trial)
        rows |= {position: read[position] for position in untyped if position in read}
        tried, ids = ids, {position for position in untyped if position in rows}
    return rows


def _read_by(tables: Sequence[nn.Embedding], model: nn.Module, batch: Batch) -> dict[int, int]:
    """Rows of the smallest table that is called with each tensor, by the tensor's place."""
    positions = {memory_of(tensor): position for position, tensor in enumerate(batch.tensors)}
    read: dict[int, int] = {}

    def watch(table: nn.Module, given: tuple[object, ...]) -> None:
        position = (
            positions.get(memory_of(given[0])) if given and isinstance(given[0], Tensor) else None
        )
        if position is not None:
            read[position] = min(int(table.num_embeddings), read.get(position, WORDS))

    handles = [table.register_forward_pre_hook(watch) for table in tables]
    try:
        with torch.no_grad(), suppress(Exception):  # values, then; whatever the user's code raises
            batch.through(model)
    finally:
        for handle in handles:
            handle.remove()
    return read
