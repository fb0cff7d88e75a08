"""XML as plain elements with their places; document types and entities are refused.

A topology needs neither, and both let a file read others or grow without end. Python's expat with
handlers that refuse them; nothing is fetched. The one document type that passes is the line that
lstopo writes, which names a file and declares nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NoReturn
from xml.parsers import expat

from parsim.errors import ScenarioError, shown

_HARMLESS = [("topology", f"hwloc{version}.dtd", None, 0) for version in ("", "2", "3")]
_DEEPEST = 64
"""PCI trees of real machines are some ten elements deep."""


@dataclass(slots=True)
class Element:
    """One element: attributes, children, and its place."""

    name: str
    attributes: dict[str, str]
    line: int
    column: int
    children: list[Element] = field(default_factory=list)

    def error(self, file: str, message: str) -> ScenarioError:
        """A ScenarioError at the element."""
        return ScenarioError(f"{file}:{self.line}:{self.column} {message}")

    def all(self, name: str) -> list[Element]:
        """Children of a name."""
        return [child for child in self.children if child.name == name]

    def text(self, file: str, name: str) -> str:
        """The text of an attribute that the element must have.

        Raises:
            ScenarioError: the element has no such attribute.
        """
        if name not in self.attributes:
            raise self.error(file, f"<{self.name}> lacks the attribute {name}")
        return self.attributes[name]

    def number(self, file: str, name: str, least: float = 0.0) -> float:
        """An attribute that is a number.

        Raises:
            ScenarioError: it is missing, no number, or below `least`.
        """
        text = self.text(file, name)
        try:
            value = float(int(text, 0)) if text.startswith("0x") else float(text)
        except (ValueError, OverflowError):  # no number, or of more hexadecimal digits than floats
            value = float("nan")
        if not least <= value < float("inf"):
            message = f"<{self.name}> {name}='{shown(text)}' must be a number of at least {least:g}"
            raise self.error(file, message)
        return value


def read_markup(text: str, file: str) -> Element:
    """The root element of an XML text.

    Raises:
        ScenarioError: a document type or entity, elements too deep, or no complete XML.
    """
    reader = _Reader(file)
    try:
        reader.parser.Parse(text.encode("utf-8"), True)
    except expat.ExpatError as error:
        raise _not_xml(error, reader.unclosed, file) from None
    except (LookupError, ValueError) as error:
        raise ScenarioError(f"{file}:1:1 is not XML: {error}") from None
    return reader.top[0]


class _Reader:
    """Builds the elements of a file as its parser meets them, and refuses what none needs."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.top: list[Element] = []
        self.unclosed: list[Element] = []
        self.parser = expat.ParserCreate()
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end
        self.parser.StartDoctypeDeclHandler = self._doctype
        for entity in ("EntityDeclHandler", "ExternalEntityRefHandler", "SkippedEntityHandler"):
            setattr(self.parser, entity, self._entity)

    def _refuse(self, what: str) -> NoReturn:
        line, column = self.parser.CurrentLineNumber, self.parser.CurrentColumnNumber + 1
        raise ScenarioError(f"{self.file}:{line}:{column} {what}")

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        if len(self.unclosed) == _DEEPEST:
            self._refuse(f"<{name}> stands within {_DEEPEST} others, which no topology needs")
        line, column = self.parser.CurrentLineNumber, self.parser.CurrentColumnNumber + 1
        element = Element(name, attributes, line, column)
        (self.unclosed[-1].children if self.unclosed else self.top).append(element)
        self.unclosed.append(element)

    def _end(self, _: str) -> None:
        self.unclosed.pop()

    def _doctype(self, name: str, system: str | None, public: str | None, internal: bool) -> None:
        if (name, system, public, internal) not in _HARMLESS:
            self._refuse(
                "a document type (<!DOCTYPE) is refused, with all entities in it; remove it"
            )

    def _entity(self, *_: object) -> NoReturn:
        self._refuse("an entity (<!ENTITY) is refused; remove it")


def _not_xml(error: expat.ExpatError, open_: list[Element], file: str) -> ScenarioError:
    """Where an XML text is broken, and within which elements it ends."""
    open_tags = "".join(f"<{shown(element.name)}>" for element in open_[-2:])
    message = expat.ErrorString(error.code)
    if open_ and error.code == _ENDS_EARLY:
        message = f"it ends within {open_tags}, so it is cut off"
    return ScenarioError(f"{file}:{error.lineno}:{error.offset + 1} is not XML: {message}")


_ENDS_EARLY = expat.errors.codes[expat.errors.XML_ERROR_NO_ELEMENTS]
