"""A YAML file as nodes that know their place, so that every complaint can name file:line:column.

ruamel.yaml composes the node graph (YAML 1.2: `no` is text) and nothing is constructed from it;
scalars stay text until a reader that knows the field's unit takes them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from parsim.errors import ScenarioError, UnitError, alternatives, shown
from parsim.files import MOST_YAML, read_text

_TEXT_TAG = "tag:yaml.org,2002:str"
_NULL_TAG = "tag:yaml.org,2002:null"


class Node(Protocol):
    """What is used of a composed node: its kind (scalar, sequence, mapping), tag, value, place."""

    id: str
    tag: str
    value: Any
    start_mark: Any
    end_mark: Any


@dataclass(frozen=True, slots=True)
class Document:
    """One YAML file: its name for messages and its root node (None where the file is empty)."""

    file: str
    root: Any

    def error(self, node: Node, field: str, message: str) -> ScenarioError:
        """A ScenarioError `file:line:column field message` at a node."""
        mark = node.start_mark
        where = f"{self.file}:{mark.line + 1}:{mark.column + 1}"
        return ScenarioError(" ".join(part for part in (where, shown(field), message) if part))

    def items(self, node: Node, field: str) -> Iterator[tuple[str, Node, Node]]:
        """Keys of a mapping node as (text, key node, value node), in file order.

        Raises:
            ScenarioError: the node is no mapping, or a key stands in it twice.
        """
        if node.id != "mapping":
            raise self.error(node, field, f"must be a mapping (key: value), not a {node.id}")
        first: dict[str, Node] = {}
        for key, value in node.value:
            name = str(key.value)
            inner = f"{field}.{name}" if field else name
            if name in first:
                line = first[name].start_mark.line + 1
                raise self.error(key, inner, f"is written twice; first on line {line}")
            first[name] = key
            yield name, key, value

    def values(
        self, node: Node, field: str, known: Sequence[str], convert: Callable[[str, str], Any]
    ) -> dict[str, Any]:
        """A mapping node of single values: word to what `convert(word, text)` makes of its text.

        Raises:
            ScenarioError: a word that is not known, a list or mapping, or text that does not
                convert (ValueError or UnitError).
        """
        values = {}
        for word, key, value in self.items(node, field):
            where = f"{field}.{word}"
            if word not in known:
                message = f"unknown field '{shown(word)}'{alternatives(word, known)}"
                raise self.error(key, where, message)
            if value.id != "scalar":
                raise self.error(value, where, f"must be one value, not a {value.id}")
            try:
                values[word] = convert(word, str(value.value))
            except (ValueError, UnitError) as error:
                raise self.error(value, where, str(error)) from None
        return values


def is_null(node: Node) -> bool:
    """Whether a node is YAML's null: `null`, `~` or nothing at all."""
    return bool(node.id == "scalar" and node.tag == _NULL_TAG)


def is_text(node: Node) -> bool:
    """Whether a node is text: quoted, or plain and neither number, truth value nor null."""
    return bool(node.id == "scalar" and node.tag == _TEXT_TAG)


def read_document(path: Path) -> Document:
    """Read a YAML file from disk.

    Raises:
        ScenarioError: the file cannot be read or is not YAML.
    """
    return parse_document(read_text(path, most=MOST_YAML, error=ScenarioError), str(path))


def parse_document(text: str, file: str) -> Document:
    """Compose YAML text, however deep; `file` is the name for messages.

    Raises:
        ScenarioError: the text is not YAML.
    """
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    try:
        return Document(file, YAML(typ="safe", pure=True).compose(text))
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        position = f":{mark.line + 1}:{mark.column + 1}" if mark else ""
        raise ScenarioError(f"{file}{position} is not YAML: {_told(error.problem)}") from error
    except YAMLError as error:
        raise ScenarioError(f"{file} is not YAML: {str(error).splitlines()[0]}") from error
    except RecursionError:
        deep = "brackets are nested too deeply"
        raise ScenarioError(f"{file} is not YAML that can be read: {deep}") from None


_MISTAKES = {
    "found character '\\t'": "a tab stands here; indent with spaces",
    "mapping values are not allowed": "no 'key: value' can stand here; indent the keys of a block "
    "alike, write each on a line of its own, and a space behind its ':'",
    "expected <block end>": "this line is indented otherwise than the block around it",
}
"""How the parser begins what it says of common mistakes, and what they are."""


def _told(problem: str) -> str:
    """What is wrong in the words of somebody who writes YAML; the parser's where they will do."""
    words = (told for start, told in _MISTAKES.items() if problem.startswith(start))
    return next(words, problem)


Plain = tuple[str, str, Any, tuple[int, int], tuple[int, int]]
"""Kind, tag, value, start and end of a node, as texts, numbers, lists and tuples alone."""


class Mark(NamedTuple):
    """A place in a text, counted from 0."""

    line: int
    column: int


class PlainNode(NamedTuple):
    """A node that was kept as plain data."""

    id: str  # scalar, sequence or mapping
    tag: str  # what YAML takes it for
    value: Any  # text, or the nodes inside
    start_mark: Mark
    end_mark: Mark


def plain_of(node: Node) -> Plain:
    """A node and those inside as plain data, which can be kept from one process to the next."""
    start, end = ((mark.line, mark.column) for mark in (node.start_mark, node.end_mark))
    value: Any = node.value
    if node.id == "mapping":
        value = [(plain_of(key), plain_of(inner)) for key, inner in value]
    elif node.id == "sequence":
        value = [plain_of(inner) for inner in value]
    return node.id, str(node.tag), value, start, end


def node_of(plain: Plain) -> PlainNode:
    """The node of what `plain_of` made of it."""
    kind, tag, value, start, end = plain
    if kind == "mapping":
        value = [(node_of(key), node_of(inner)) for key, inner in value]
    elif kind == "sequence":
        value = [node_of(inner) for inner in value]
    return PlainNode(kind, tag, value, Mark(*start), Mark(*end))
