"""Pieces of tensors: written in one cut and read in another; tables that lie are refused."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor  # noqa: E402

from executor.checkpoint.folder import TENSORS  # noqa: E402
from executor.checkpoint.pieces import (  # noqa: E402
    Box,
    Piece,
    read_pieces,
    written_pieces,
)
from executor.checkpoint.tensors import (  # noqa: E402
    Pieces,
    file_of,
    shared_out,
    write_pieces,
    write_table,
)
from executor.training.build import build_trainer  # noqa: E402
from parsim.errors import InputError  # noqa: E402
from parsim.plan import Plan  # noqa: E402
from tests.executor.workers.specs import DEEPSEEK  # noqa: E402

WHOLE = torch.arange(24.0).view(6, 4)


pytestmark = pytest.mark.usefixtures("one_rank")


def piece(
    offsets: Sequence[int],
    sizes: Sequence[int],
    flat: tuple[int, int] | None = None,
    *,
    name: str = "weight/w",
    values: Tensor | None = None,
) -> Piece:
    """A piece of `WHOLE`, with its values or others."""
    box = Box(offsets=tuple(offsets), sizes=tuple(sizes))
    begin, end = flat or (0, box.count)
    part = WHOLE[tuple(slice(o, o + s) for o, s in zip(offsets, sizes, strict=True))]
    mine = part.reshape(-1)[begin:end] if values is None else values
    return Piece(name=name, whole=(6, 4), box=box, begin=begin, end=end, values=mine)


def saved(folder: Path, pieces: Sequence[Piece]) -> Path:
    """A checkpoint's tensors; as each name is once in a file, pieces go to files of their own."""
    writers = {}
    for number, each in enumerate(pieces):
        ((key, _),) = shared_out([each]).items()
        writers[key] = number
        write_pieces(folder, [each], {key: 0})
        (folder / file_of(0)).rename(folder / file_of(number + 1000))
    for number in range(len(pieces)):
        (folder / file_of(number + 1000)).rename(folder / file_of(number))
    write_table(folder, writers, {"updates": 2})
    return folder


ROWS = [piece((0, 0), (4, 4)), piece((4, 0), (2, 4))]
COLUMNS = [piece((0, 0), (6, 1)), piece((0, 1), (6, 3))]
RANGES = [piece((0, 0), (6, 4), (0, 7)), piece((0, 0), (6, 4), (7, 24))]
MIXED = [piece((0, 0), (6, 2), (5, 12)), piece((0, 0), (6, 2), (0, 5)), piece((0, 2), (6, 2))]


@pytest.mark.parametrize("wrote", [ROWS, COLUMNS, RANGES, MIXED])
@pytest.mark.parametrize("wanted", [ROWS, COLUMNS, RANGES, MIXED])
def test_any_cut_is_read_from_any_other(
    wrote: list[Piece], wanted: list[Piece], tmp_path: Path
) -> None:
    stored = Pieces(saved(tmp_path, wrote))
    assert stored.numbers == {"updates": 2}
    for each in wanted:
        target = piece(
            each.box.offsets,
            each.box.sizes,
            (each.begin, each.end),
            values=torch.zeros(each.end - each.begin, dtype=torch.bfloat16),
        )
        stored.read(target)
        assert target.values.tolist() == each.values.tolist()


def test_boxes_that_share_nothing() -> None:
    ahead, behind = Box(offsets=(0, 0), sizes=(2, 2)), Box(offsets=(2, 0), sizes=(2, 2))
    assert ahead.common(behind) is None
    assert ahead.common(Box(offsets=(1, 1), sizes=(4, 4))) == (
        (slice(1, 2), slice(1, 2)),
        (slice(0, 1), slice(0, 1)),
    )


def test_a_scalar_is_a_piece_too(tmp_path: Path) -> None:
    first = Piece(name="s", whole=(), box=Box.whole(()), begin=0, end=1, values=torch.tensor(3.0))
    target = Piece(name="s", whole=(), box=Box.whole(()), begin=0, end=1, values=torch.zeros(()))
    Pieces(saved(tmp_path, [first])).read(target)
    assert float(target.values) == 3.0


def refused(folder: Path, wanted: Piece) -> str:
    with pytest.raises(InputError) as caught:
        Pieces(folder).read(wanted)
    return str(caught.value)


def test_what_is_not_there(tmp_path: Path) -> None:
    folder = saved(tmp_path, ROWS)
    other = piece((0, 0), (6, 4), name="exp_avg/w")
    assert "holds no exp_avg of w; it was written with another optimizer" in refused(folder, other)
    longer = Piece(
        name="weight/w", whole=(7, 4), box=ROWS[0].box, begin=0, end=16, values=torch.zeros(16)
    )
    assert "weight/w has shape [6, 4], but this plan needs [7, 4]" in refused(folder, longer)


@pytest.mark.parametrize("wrote", [ROWS[:1], RANGES[1:]])
def test_values_that_nobody_wrote(wrote: list[Piece], tmp_path: Path) -> None:
    told = refused(saved(tmp_path, wrote), piece((0, 0), (6, 4)))
    assert "tensors.json is damaged: " in told
    assert "of 24 values of weight/w" in told


def edited(entry: str, value: object) -> Callable[[dict[str, Any]], object]:
    return lambda table: table["tensors"]["weight/w"]["pieces"][0].update({entry: value})


@pytest.mark.parametrize(
    "edit",
    [
        edited("file", "../other"),
        edited("offsets", [3, 0]),
        edited("sizes", [-1, 4]),
        edited("sizes", [4]),
        edited("range", [3, 3]),
        edited("range", [0, 17]),
        edited("range", "whole"),
        lambda table: table.pop("tensors"),
        lambda table: table.update(tensors=[1]),
        lambda table: table["tensors"].update(other={}),
    ],
)
def test_a_table_that_lies(edit: Callable[[dict[str, Any]], object], tmp_path: Path) -> None:
    folder = saved(tmp_path, ROWS)
    table = json.loads((folder / TENSORS).read_text())
    edit(table)
    (folder / TENSORS).write_text(json.dumps(table))
    assert "tensors.json is damaged: it cannot be read (" in refused(folder, ROWS[0])


@pytest.mark.parametrize("content", ["", "[", "[]", "\x80\x05."])
def test_a_table_that_is_none(content: str, tmp_path: Path) -> None:
    (tmp_path / TENSORS).write_text(content)
    assert "tensors.json is damaged: it cannot be read (" in refused(tmp_path, ROWS[0])


def test_a_file_that_holds_other_values(tmp_path: Path) -> None:
    folder = saved(tmp_path, ROWS)
    (folder / file_of(1)).replace(folder / file_of(0))
    told = refused(folder, ROWS[0])
    assert "rank-00000.safetensors is damaged: weight/w has shape [8]" in told


def test_all_that_is_read_is_written() -> None:
    """The bias by which experts are chosen too, of which no fp32 copy is kept."""
    trainer = build_trainer(DEEPSEEK, Plan(precision="bf16"), device=torch.device("cpu"), seed=0)
    written = {piece.name for piece in written_pieces(trainer)}
    assert any(name.endswith("bias_of_choice") for name in written)
    assert {piece.name for piece in read_pieces(trainer)} == written
