"""YAML as plain data in which every key remembers where it was written.

A position is `file:line:column`, or `--set plan.tp=4` for what the command line put in.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from os import PathLike, fspath
from pathlib import Path
from typing import Any, Final

from parsim.cluster.document import Document, Node, parse_document
from parsim.errors import InputError, ScenarioError, shown
from parsim.files import MOST_ROWS, MOST_YAML, read_text
from parsim.scenario.other_files import is_table, refuse_document, refuse_table

KeyPath = tuple[str | int, ...]

NAMED_BLOCKS: Final[frozenset[KeyPath]] = frozenset({("software",), ("plan", "strategy")})
"""Blocks for which their name may stand alone (`schema.values.named`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree:
    """A file's content as dicts, lists and scalars, and the position of each key and list item.

    `overrides` are the positions of what the command line put in, `absent` those of keys that it
    took away though there are none.
    """

    file: Path
    data: dict[str, Any]
    positions: dict[KeyPath, str]
    overrides: tuple[str, ...] = ()
    absent: dict[KeyPath, str] = field(default_factory=dict)

    def folder(self, path: KeyPath) -> Path:
        """Where a file that a key names is looked for: beside the scenario, or where --set is."""
        return Path() if self.position(path) in self.overrides else self.file.parent

    def position(self, path: KeyPath) -> str:
        """Where a key was written; for one that was not, the nearest block around it."""
        while path not in self.positions:
            path = path[:-1]
        return self.positions[path]

    def error(self, path: KeyPath, message: str) -> ScenarioError:
        """The ScenarioError `file:line:column field message` at a key."""
        return ScenarioError(self.message(path, message))

    def message(self, path: KeyPath, message: str) -> str:
        """The text `file:line:column field message` at a key."""
        field = shown(".".join(map(str, path)))
        return " ".join(part for part in (self.position(path), field, message) if part)

    @contextmanager
    def located(
        self, *path: str, also: str = "", error: type[InputError] = ScenarioError
    ) -> Iterator[None]:
        """Put the position in front of whatever is complained about inside.

        Messages of the records start with `field=value`; where the block at `path`, or the block
        `also`, has that field, the position is the field's.
        """
        try:
            yield
        except InputError as wrong:
            raise error(self._relocated(path, also, str(wrong))) from None

    def _relocated(self, path: KeyPath, also: str, wrong: str) -> str:
        named = wrong.partition("=")[0]
        block = (also,) if (also, named) in self.positions else path
        inner = (*block, named)
        position = self.position(inner if inner in self.positions else block)
        field = ".".join(map(str, block))
        told = wrong if wrong.startswith(f"{field} ") else f"{field} {wrong}"
        others = [override for override in self.overrides if override != position]
        return f"{position} {told}" + (f" (with {', '.join(others)})" if others else "")


def read_tree(path: Path, overrides: Mapping[str, object]) -> Tree:
    """Read a scenario file and apply `--set` overrides to it.

    Raises:
        ScenarioError: the file is missing, unreadable, not YAML, empty or no mapping, a key stands
            in it twice, it is a file of another kind, or an override cannot be applied.
    """
    most = MOST_ROWS if is_table(path) else MOST_YAML
    text = read_text(path, most=most, error=ScenarioError, near=(".yaml", ".yml"))
    refuse_table(path, text)
    reader = _Reader(parse_document(text, str(path)))
    data = _blocks(path, reader)
    refuse_document(path, data)
    texts = {name: _yaml(name, value) for name, value in overrides.items()}
    positions = tuple(f"--set {shown(name)}={shown(text)}" for name, text in texts.items())
    tree = Tree(file=path, data=data, positions=reader.positions, overrides=positions)
    for (name, text), position in zip(texts.items(), positions, strict=True):
        _override(tree, name, text, position)
    return tree


def _blocks(path: Path, reader: _Reader) -> dict[str, Any]:
    """The mapping of a file's blocks; a file that is empty, or holds something else, is refused."""
    root = reader.document.root
    if root is None:
        raise ScenarioError(
            f"{path} is empty; a scenario has the blocks model, cluster, training, and plan or "
            f"search"
        )
    data = reader.value(root, ())
    if not isinstance(data, dict):
        raise ScenarioError(
            f"{path}:1:1 must be a mapping with the blocks model, cluster, training, and plan or "
            f"search, not {kind(data)}"
        )
    return data


def _yaml(name: str, value: object) -> str:
    """The YAML of an override: text as it stands, another value as JSON, which YAML holds."""
    if isinstance(value, str):
        return value
    try:
        return json.dumps(value, default=_plain)
    except (TypeError, ValueError):
        raise ScenarioError(
            f"--set {name} cannot be a {type(value).__name__}; give a number, a text, true or "
            f"false, None, or lists and dicts of them"
        ) from None


def _plain(value: object) -> object:
    """A path as its text, a number of numpy as Python's."""
    if isinstance(value, PathLike):
        return fspath(value)
    if not hasattr(value, "item"):
        raise TypeError
    return value.item()


class _Reader:
    """Turns composed nodes into plain data and notes the position of each."""

    def __init__(self, document: Document) -> None:
        from ruamel.yaml import YAML

        self.document = document
        self.positions: dict[KeyPath, str] = {(): f"{document.file}:1:1"}
        self._scalars = YAML(typ="safe", pure=True).constructor
        self._seen: set[int] = set()

    def value(self, node: Node, path: KeyPath) -> Any:  # noqa: ANN401 - whatever was written
        if id(node) in self._seen:
            raise self._wrong(node, path, "aliases (*name) are not supported; write the value out")
        self._seen.add(id(node))
        if node.id == "mapping":
            return dict(self._members(node, path))
        if node.id == "sequence":
            return [self._noted(item, item, (*path, i)) for i, item in enumerate(node.value)]
        return self._scalar(node, path)

    def _members(self, node: Node, path: KeyPath) -> Iterator[tuple[str, Any]]:
        field = ".".join(map(str, path))
        for name, key, value in self.document.items(node, field):
            if key.id != "scalar":
                raise self._wrong(key, path, f"a key must be one word, not a {key.id}")
            yield name, self._noted(key, value, (*path, name))

    def _noted(self, written: Node, node: Node, path: KeyPath) -> Any:  # noqa: ANN401
        """The value of a node, whose position is that of its key or of the item of a list."""
        mark = written.start_mark
        self.positions[path] = f"{self.document.file}:{mark.line + 1}:{mark.column + 1}"
        return self.value(node, path)

    def _scalar(self, node: Node, path: KeyPath) -> Any:  # noqa: ANN401
        from ruamel.yaml.error import YAMLError

        try:
            return self._scalars.construct_object(node, deep=True)
        except (YAMLError, ValueError):
            raise self._wrong(
                node, path, f"'{shown(node.value)}' cannot be read as {node.tag}"
            ) from None

    def _wrong(self, node: Node, path: KeyPath, message: str) -> ScenarioError:
        return self.document.error(node, ".".join(map(str, path)), message)


def _override(tree: Tree, name: str, text: str, position: str) -> None:
    """Set one dotted key; null, or nothing behind the `=`, takes the key away.

    A range such as `>= 2` needs no quotes: what YAML begins so takes several lines.
    """
    keys = name.split(".")
    if not all(keys):
        raise ScenarioError(f"{position} needs a key such as plan.tp in front of the '='")
    try:
        quoted = json.dumps(text) if text.lstrip().startswith(">") else text
        document = parse_document(quoted, "value")
        root = document.root
        value = None if root is None else _Reader(document).value(root, ())
    except ScenarioError as wrong:
        raise ScenarioError(f"{position} {wrong}") from None
    block = _block(tree, keys[:-1], position)
    for path in [path for path in tree.positions if path[: len(keys)] == tuple(keys)]:
        del tree.positions[path]
    if value is None and keys[-1] not in block:
        tree.absent[tuple(keys)] = position
    block.pop(keys[-1], None)
    if value is not None:
        block[keys[-1]] = value
        tree.positions[tuple(keys)] = position


def _block(tree: Tree, keys: Sequence[str], position: str) -> dict[str, Any]:
    """The block that holds an overridden key, made where the file has none."""
    block = tree.data
    for depth, key in enumerate(keys):
        if block.get(key) is None:
            block[key] = {}
            tree.positions.setdefault(tuple(keys[: depth + 1]), position)
        path = tuple(keys[: depth + 1])
        inner = block[key]
        if path in NAMED_BLOCKS and isinstance(inner, str):
            block[key] = inner = {"name": inner}
            tree.positions[*path, "name"] = tree.position(path)
        if not isinstance(inner, dict):
            field = ".".join(path)
            raise ScenarioError(f"{position} {field} is {kind(inner)}, so nothing in it can be set")
        block = inner
    return block


def kind(value: object) -> str:
    """What a value is, in the words of a YAML file."""
    if isinstance(value, dict):
        return "a block"
    if isinstance(value, list):
        return "a list" if value else "an empty list"
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"'{shown(value)}'" if isinstance(value, str) else shown(value)
