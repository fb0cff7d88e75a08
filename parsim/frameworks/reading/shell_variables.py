"""Variables of a launch script, put in where the script says what they are.

    TP=4   export TP=4   TP=${TP:-4}   : ${TP:=4}    a value, or what the script falls back to
    $TP   ${TP}   ${TP:-4}   ${1:-4}                 what it is put in for
    $((NODES * 8))                                   whole numbers with + - * / % and brackets

Leaves out: variables that are set to different values (conditions decide which one counts), words
that commands print, and arrays (all flags of a script are read in any case).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Container, Mapping
from operator import add, floordiv, mod, mul, sub

from parsim.frameworks.reading.arguments import without_comments
from parsim.units import whole_number

_INSIDE = r"\$\(\(((?:[^\n;()]|\([^\n;()]*\))*)\)\)"
_SET = re.compile(
    r"(?:^|[;\s])(?:([A-Za-z_]\w*)=|:[ \t]+\"?\$\{([A-Za-z_]\w*):?=)"
    rf"(\"[^\"\n]*\"|'[^'\n]*'|{_INSIDE}|\$\{{[^{{}}\n]*\}}|[^\s;\"'(){{}}]+)",
    re.MULTILINE,
)
_USED = re.compile(r"\$\{(\w+)(?::?-\"?([^{}\"\n]*)\"?)?\}|\$([A-Za-z_]\w*)")
_SUM = re.compile(_INSIDE)
_WORD = re.compile(r"[\w./:,+%@][\w./:,+%@-]{0,199}")
"""What is put in: one word that is no flag."""
_DEEPEST = 16
"""How many variables may stand behind one another."""
_SIGNS: Mapping[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: add,
    ast.Sub: sub,
    ast.Mult: mul,
    ast.Div: floordiv,
    ast.Mod: mod,
}


class Variables:
    """A script's variables as written, their words, and which of them it falls back to."""

    def __init__(self, text: str) -> None:
        self.values: dict[str, str] = {}
        self.defaults: dict[str, str] = {}
        self.words: dict[str, str] = {}
        different = set()
        for name, asked, value, _ in _SET.findall(text):
            plain = value.strip("\"'")
            if self.values.setdefault(name or asked, plain) != plain:
                different.add(name or asked)
        for name in different:
            del self.values[name]

    def put_in(self, text: str, behind: tuple[str, ...] = ()) -> str:
        """The text with all that is known; `behind` are the variables that it is the value of."""
        if len(behind) > _DEEPEST:
            return text
        known = _USED.sub(lambda match: self._value(match, behind), text)
        return _SUM.sub(lambda match: self._whole(match, behind), known)

    def _value(self, match: re.Match[str], behind: tuple[str, ...]) -> str:
        name, default = match[1] or match[3], match[2]
        stated = None if name in behind else self.values.get(name)
        if stated is None and default is None:
            return match[0]
        if stated is None:
            word = self.put_in(default, (*behind, name))
        else:
            word = self.words.get(name) or self.put_in(stated, (*behind, name))
            self.words[name] = word
        if not _WORD.fullmatch(word):
            return match[0]
        if stated is None:
            self.defaults[name] = word
        return word

    def _whole(self, match: re.Match[str], behind: tuple[str, ...]) -> str:
        """The value of a sum, or the sum where it is none of whole numbers."""
        named = re.sub(r"\b([A-Za-z_]\w*)\b", r"${\1}", match[1])
        try:
            return str(_evaluated(ast.parse(self.put_in(named, behind).strip(), mode="eval").body))
        except (SyntaxError, ValueError, ZeroDivisionError, RecursionError, MemoryError):
            return match[0]


def with_values(text: str) -> tuple[str, dict[str, str]]:
    """A script without comments and with its variables put in, and the values it falls back to."""
    plain = "\n".join(without_comments(text))
    variables = Variables(plain)
    return variables.put_in(plain), variables.defaults


def fallback_note(text: str, defaults: Mapping[str, str], read: Container[str]) -> list[str]:
    """A note of the values that a script falls back to and that flags which were read may have.

    A word that no such flag is given may be a key or a path, and is nobody's business.
    """

    def matters(name: str) -> bool:
        flags = re.findall(rf"(--[a-z][\w-]*)[ =]+\"?\$\{{?{name}\b", text)
        return any(flag in read for flag in flags) if flags else _counts(defaults[name])

    told = ", ".join(f"${name} = {defaults[name]}" for name in sorted(filter(matters, defaults)))
    return [f"what the script falls back to is taken: {told}"] if told else []


def _counts(word: str) -> bool:
    return whole_number(word) is not None


def behind_conditions(text: str) -> set[str]:
    """Flags that stand inside of if or case."""
    depth, flags = 0, set()
    for line in text.splitlines():
        word = line.strip()
        depth += bool(re.match(r"(if|case)\b", word)) - bool(
            re.search(r"(^|;\s*)(fi|esac)\b", word)
        )
        if depth > 0:
            flags.update(re.findall(r"(?<![\w-])--[a-z][\w-]*", word))
    return flags


def _evaluated(tree: ast.expr) -> int:
    """A sum of whole numbers.

    Raises:
        ValueError: anything else.
    """
    if isinstance(tree, ast.Constant):
        number = whole_number(str(tree.value))
        if number is not None:
            return number
    if isinstance(tree, ast.BinOp) and type(tree.op) in _SIGNS:
        return _SIGNS[type(tree.op)](_evaluated(tree.left), _evaluated(tree.right))
    raise ValueError("no sum of whole numbers")
