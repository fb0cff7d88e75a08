"""The table that `nvidia-smi topo -m` prints: its cells, checked, and the devices it names.

        GPU0  GPU1  NIC0  CPU Affinity  NUMA Affinity
    GPU0  X   NV12  PXB   0-63          0
    GPU1 NV12  X    SYS   64-127        1
    NIC0 PXB  SYS    X

Columns are padded with tabs or spaces, the header may be underlined by escapes, legends follow.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from parsim.errors import ScenarioError, shown

_ESCAPE = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_DEVICE = re.compile(r"GPU\d+")
_HEADER = re.compile(r"\s*GPU\d+\b")
_NAMED = re.compile(r"^\s*GPU \d+: (.+?)(?: \(UUID.*)?$", re.MULTILINE)
NVLINKS = re.compile(r"NV(\d+)")
_ROW = re.compile(r"^\s*GPU\d+\s+(X|NV\d+|PIX|PXB|PHB|NODE|SYS|SOC)\b", re.MULTILINE)
SWITCH, BRIDGE = ("PIX", "PXB"), ("PHB", "NODE")
"""Cells of parts within PCIe switches, and over bridges of a NUMA node."""
_CELLS = ("X", "NV#", *SWITCH, *BRIDGE, "SYS", "SOC")
_ALLOWED = f"allowed: {', '.join(_CELLS)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """The cells by (row, column), the names of devices and interfaces in their order.

    `affinity` is the column of cores beside a device, the same for those of one socket.
    """

    cells: Mapping[tuple[str, str], str]
    affinity: Mapping[str, str]
    devices: Sequence[str]
    nics: Sequence[str]


def looks_like_table(text: str) -> bool:
    """Whether a text has a row that begins with GPU0 and has cells."""
    return _ROW.search(_plain(text)) is not None


def named_devices(text: str) -> list[str]:
    """Names of devices that the text lists beside the table, as the driver calls them."""
    return list(dict.fromkeys(_NAMED.findall(_plain(text))))


def _plain(text: str) -> str:
    return _ESCAPE.sub("", text).lstrip("\ufeff")


def parse_table(text: str, file: str) -> Table:
    """The table in what was printed; lines behind its last row do not count.

    Raises:
        ScenarioError: a row or column missing or twice, an unknown cell, or cells that disagree.
    """
    lines = list(enumerate(_plain(text).splitlines(), 1))
    starts = (numbered for numbered in lines if _HEADER.match(numbered[1]))
    top, header = next(starts, (0, ""))
    columns = _columns(header, file, top)
    rows = _rows(lines[top:], columns, file)
    if missing := [name for name in columns if name not in rows]:
        raise ScenarioError(f"{file}:{top}:1 {shown(missing[0])} is a column without a row")
    cells = {pair: cell for row in rows.values() for pair, cell in row.cells.items()}
    _check_symmetric(cells, columns, {name: row.number for name, row in rows.items()}, file)
    devices = [name for name in columns if _DEVICE.fullmatch(name)]
    return Table(
        cells=cells,
        affinity={name: row.cores for name, row in rows.items() if row.cores},
        devices=devices,
        nics=[name for name in columns if name not in devices],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """A row: its line's number, its cells by (row, column), and the cores beside it, if any."""

    number: int
    cells: Mapping[tuple[str, str], str]
    cores: str


def _rows(lines: Iterable[tuple[int, str]], columns: Sequence[str], file: str) -> dict[str, _Row]:
    """The rows by name, up to the last that the header announces."""
    rows: dict[str, _Row] = {}
    for number, line in lines:
        name, *words = line.split() or [""]
        if name not in columns:
            continue
        if name in rows:
            first = f"first on line {rows[name].number}"
            raise ScenarioError(f"{file}:{number}:1 {shown(name)} has a second row; {first}")
        cells = dict(_cells(name, words, columns, f"{file}:{number}", line))
        rows[name] = _Row(number=number, cells=cells, cores=_cores(words[len(columns) :]))
        if len(rows) == len(columns):
            break
    return rows


def _cores(beyond: Sequence[str]) -> str:
    """The affinity that stands behind the cells."""
    return beyond[0] if beyond and beyond[0][0].isdigit() else ""


def _columns(header: str, file: str, number: int) -> list[str]:
    """Names of devices and interfaces; the affinities that follow have two words."""
    words = header.split()
    end = next((i for i, word in enumerate(words) if word in ("CPU", "NUMA")), len(words))
    if end == 0 or (len(words) > 1 and words[1] in _CELLS):
        raise ScenarioError(f"{file}:{max(number, 1)}:1 lacks the header GPU0 GPU1 ...")
    for index, word in enumerate(words[:end]):
        if word in words[:index]:
            column = header.rindex(word) + 1
            raise ScenarioError(f"{file}:{number}:{column} {shown(word)} is a column twice")
    return words[:end]


def _cells(
    name: str, words: Sequence[str], columns: Sequence[str], where: str, line: str
) -> Iterator[tuple[tuple[str, str], str]]:
    """The cells of a row by (row, column); `where` is its file and line in messages."""
    for index, column in enumerate(columns):
        cell = words[index] if index < len(words) else ""
        if (cell == "X") != (name == column) or not _known(cell):
            start = line.find(cell, line.find(name) + len(name)) + 1 if cell else len(line) + 1
            text = f"'{shown(cell)}'" if cell else "nothing"
            why = "X stands where row and column are one" if _known(cell) else _ALLOWED
            raise ScenarioError(
                f"{where}:{start} {shown(name)} has {text} under {shown(column)}; {why}; "
                f"a column may be missing"
            )
        yield (name, column), "SYS" if cell == "SOC" else cell


def _known(cell: str) -> bool:
    return cell in _CELLS[2:] or cell == "X" or NVLINKS.fullmatch(cell) is not None


def _check_symmetric(
    cells: Mapping[tuple[str, str], str],
    columns: Sequence[str],
    lines: Mapping[str, int],
    file: str,
) -> None:
    for first, second in combinations(columns, 2):
        one_way, back = cells[first, second], cells[second, first]
        if one_way != back:
            row, column = shown(second), shown(first)
            raise ScenarioError(
                f"{file}:{lines[second]}:1 {row} has {back} under {column}, "
                f"but {column} has {one_way} under {row}; both are one way"
            )
