"""What shipped YAML parses to is kept between processes, and only for the very same text."""

from __future__ import annotations

import marshal
import os
import random
import sys
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from parsim.cluster.document import node_of, parse_document, plain_of
from parsim.files import entries_of, entry_texts
from parsim.parsed import DIGEST_BYTES, ParsedTexts

Parse = Callable[[str], Any]

PLAIN_FILES = [
    files("parsim.cost") / "software.yaml",
    files("parsim.model") / "catalog/models.yaml",
]
NODE_FILES = [files("parsim.cluster") / f"catalog/{name}.yaml" for name in ("devices", "systems")]


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A shipped file beside which Python would keep compiled modules."""
    monkeypatch.setattr(sys, "pycache_prefix", None)
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    path = tmp_path / "some.yaml"
    path.write_text("a:\n  x: 1\nb:\n  y: [2.5, two]\n", encoding="utf-8")
    return path


def kept_in(file: Path) -> list[Path]:
    return sorted(file.parent.glob("__pycache__/*"))


def refuse(text: str) -> Any:
    raise AssertionError(f"parsed again: {text}")


def test_a_text_is_parsed_by_the_first_process_alone(file: Path) -> None:
    first = ParsedTexts(file, ["x: 1", "y: 2"], lambda text: {"of": [text, 1.5, None, True]})
    assert first("x: 1") == {"of": ["x: 1", 1.5, None, True]}
    assert ParsedTexts(file, ["x: 1"], refuse)("x: 1") == first("x: 1")


def test_each_asker_has_data_of_its_own(file: Path) -> None:
    parsed = ParsedTexts(file, ["x"], lambda text: [text])
    parsed("x").append("changed")
    parsed("x").append("changed")
    assert parsed("x") == ["x"]


def test_an_edited_entry_is_read_anew_and_the_old_text_forgotten(file: Path) -> None:
    assert entries_of(file)["b"] == {"y": [2.5, "two"]}
    (path,) = kept_in(file)
    file.write_text(file.read_text().replace("2.5", "2.75"), encoding="utf-8")
    assert entries_of(file)["b"] == {"y": [2.75, "two"]}
    assert list(marshal.loads(path.read_bytes()[DIGEST_BYTES:])) == ["b:\n  y: [2.75, two]\n"]


DAMAGED = {
    "empty": b"",
    "text": b"text",
    "another type": marshal.dumps([1]),
    "nothing kept": marshal.dumps({}),
    "a number for bytes": marshal.dumps({"x": 5}),
    "bytes of nothing": marshal.dumps({"x": b""}),
    "bytes cut short": marshal.dumps({"x": marshal.dumps("other")[:-1]}),
    "another edition's": marshal.dumps({"x": marshal.dumps("other")}),
    "gigabytes of a list": b"[\xff\xff\xff\x7f",
    "random": random.Random(1).randbytes(300),
}


@pytest.mark.parametrize("content", DAMAGED.values(), ids=DAMAGED)
def test_what_is_damaged_is_parsed_again(file: Path, content: bytes) -> None:
    ParsedTexts(file, ["x"], lambda text: text)("x")
    (path,) = kept_in(file)
    path.write_bytes(content)
    assert ParsedTexts(file, ["x"], lambda text: text * 2)("x") == "xx"
    assert ParsedTexts(file, ["x"], refuse)("x") == "xx"


def test_a_flipped_bit_is_noticed(file: Path) -> None:
    ParsedTexts(file, ["x"], lambda _: {"rate": 2.5})("x")
    (path,) = kept_in(file)
    good = path.read_bytes()
    for at in range(len(good)):
        path.write_bytes(good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :])
        assert ParsedTexts(file, ["x"], lambda _: "parsed again")("x") == "parsed again"
        path.write_bytes(good[:at])
        assert ParsedTexts(file, ["x"], lambda _: "parsed again")("x") == "parsed again"


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo])
def test_a_folder_or_a_pipe_in_its_place_is_no_mistake(
    file: Path, make: Callable[[Path], None]
) -> None:
    assert entries_of(file)["a"] == {"x": 1}
    (path,) = kept_in(file)
    path.unlink()
    make(path)
    assert entries_of(file)["a"] == {"x": 1}
    assert kept_in(file) == [path]


def test_what_python_cannot_keep_is_parsed_each_time(file: Path) -> None:
    parsed = ParsedTexts(file, ["x"], lambda _: file)
    assert parsed("x") == parsed("x") == file
    assert not kept_in(file)


def test_nothing_is_written_where_no_modules_are(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    assert entries_of(file)["a"] == {"x": 1}
    assert not kept_in(file)


def test_a_folder_that_may_not_be_written_is_no_mistake(file: Path) -> None:
    (file.parent / "__pycache__").write_text("no folder")
    assert entries_of(file)["a"] == {"x": 1}
    assert entries_of(file)["a"] == {"x": 1}


@pytest.mark.parametrize("shipped", PLAIN_FILES, ids=lambda file: file.name)
def test_all_shipped_entries_are_kept_as_they_are_read(shipped: Path) -> None:
    for name, entry in entries_of(shipped).items():
        assert repr(marshal.loads(marshal.dumps(entry))) == repr(entry), name


@pytest.mark.parametrize("shipped", NODE_FILES, ids=lambda file: file.name)
def test_all_shipped_nodes_are_kept_as_they_are_read(shipped: Path) -> None:
    for text in entry_texts(shipped.read_text(encoding="utf-8"), indent=2).values():
        node = parse_document(text, shipped.name).root
        assert_same(node_of(marshal.loads(marshal.dumps(plain_of(node)))), node)


def assert_same(node: Any, other: Any) -> None:
    assert (node.id, node.tag) == (other.id, other.tag)
    for mark, where in (
        (node.start_mark, other.start_mark),
        (node.end_mark, other.end_mark),
    ):
        assert (mark.line, mark.column) == (where.line, where.column)
    if node.id == "scalar":
        assert node.value == other.value
        return
    pairs = node.value if node.id == "sequence" else [n for pair in node.value for n in pair]
    others = other.value if other.id == "sequence" else [n for pair in other.value for n in pair]
    for inner, like in zip(pairs, others, strict=True):
        assert_same(inner, like)
