"""Ways to spoil a text: hostile values in the place of its own, lines moved, bytes changed."""

from __future__ import annotations

import re
from collections.abc import Callable
from random import Random

MARK = "Q"
"""The letter of overlong values; messages must not repeat them whole."""

HOSTILE = (
    *("0", "-1", "1", "3", "7", "0.5", "96", "1000", "100000", "1000000", "1000000000"),
    *("1e9", "1e300", "1e308", "-1e308", "1e-300", "1e999", "nan", "inf", "-inf", ".inf", ".nan"),
    *("9" * 30, "9" * 5000, "0x" + "f" * 6000, "1_000", "١٢", "1/3", "0b1", "--", "+1"),
    *("", "null", "~", "true", "no", "[]", "{}", "[1, 2]", "{a: 1}", "[[]]", "''", '""'),
    *("=1+1", "@x", "-x", "../../nowhere", "/dev/zero", "/dev/null", "/", ".", "a\0b", "\x1b[2J"),
    *("[" * 5000, "]", "{a: " * 300, "&a [*a]", "*a", "!!python/object:os.system x", "!x y"),
    *("<<: 1", "é", "\ufeff", "\u202e", "\ud7ff", "😀", "%s%n", "$(id)", "`id`", "a\nb: c", "# x"),
    *(MARK * 5000, MARK * 90, "[red]x[/]", "[/]", "{x}", "{0}", "\\", "\t", "'", '"', ",", ";"),
    *("1GB/s", "1e30GB/s", "1e-30GB/s", "1B", "0s", "1e12s", "5us", "80GiB", "1TFLOP/s", "0GB/s"),
    *("gpt2", "llama3-8b", "mixtral-8x7b", "bert-large", "qwen3-30b-a3b", "dgx-a100", "dgx-h100"),
    *("cpu", "gb200-nvl72", "fp8", "fp32", "nvfp4", "1f1b", "zb_v", "interleaved", "gpipe", "full"),
    *("selective", "none", "megatron-te-2025", "generic", "ring", "torus-3d", "dragonfly"),
    *("fat-tree", "a: b: c"),
)  # fmt: skip
"""Values in the place of others: extremes, wrong kinds, syntax, names of other entries."""

NAMES = tuple(
    text for text in HOSTILE if "/" not in text and text not in (".", "") and MARK * 90 not in text
)
"""Texts that may name a file to write: in the folder of the input, and no long value, for messages
show paths whole."""

_VALUE = re.compile(r"[-+.\w/@%]+")
_NUMBER = re.compile(r"(?<![-+.\w])\d+(?:\.\d+)?(?![-+.\w])")
_SYNTAX = "{}[]:,&*#?|-<>=!%@`'\"\\\n\t\r\0 \ufeff"


def value(random: Random, _: str = "") -> str:
    """Something that stands in the place of a value."""
    if random.random() < 0.2:
        return str(
            random.choice((1, -1)) * round(10 ** random.uniform(-3, 12), random.randint(0, 3))
        )
    return random.choice(HOSTILE)


def another_value(random: Random, text: str) -> str:
    """One word of the text becomes a hostile one."""
    words = list(_VALUE.finditer(text))
    if not words:
        return value(random)
    word = random.choice(words)
    return text[: word.start()] + value(random) + text[word.end() :]


def another_number(random: Random, text: str) -> str:
    """One number of the text becomes another one, that may well stand there."""
    numbers = list(_NUMBER.finditer(text))
    if not numbers:
        return text
    number = random.choice(numbers)
    other = random.choice(("0", "1", "2", "3", "7", "64", "0.5", "1000", "1000000", "10000000000"))
    return text[: number.start()] + other + text[number.end() :]


def swapped_values(random: Random, text: str) -> str:
    """Two words of the text change places."""
    words = list(_VALUE.finditer(text))
    if len(words) < 2:
        return text
    first, second = sorted(random.sample(words, 2), key=lambda word: word.start())
    middle = text[first.end() : second.start()]
    return text[: first.start()] + second[0] + middle + first[0] + text[second.end() :]


def lines_moved(random: Random, text: str) -> str:
    """A line goes, comes twice, moves, or is indented otherwise."""
    lines = text.splitlines(keepends=True) or [""]
    at = random.randrange(len(lines))
    line = lines.pop(at)
    kind = random.randrange(4)
    if kind == 1:
        lines[at:at] = [line, line]
    elif kind == 2:
        lines.insert(random.randint(0, len(lines)), line)
    elif kind == 3:
        lines.insert(
            at, " " * random.choice((1, 2, 4)) + line if random.random() < 0.5 else line[2:]
        )
    return "".join(lines)


def another_sign(random: Random, text: str) -> str:
    """One character is lost, doubled or becomes syntax."""
    at = random.randrange(len(text) + 1)
    sign = random.choice(_SYNTAX)
    return text[:at] + random.choice(("", sign, sign * 2)) + text[at + random.randint(0, 2) :]


def cut(random: Random, text: str) -> str:
    """The text ends early, or a piece in its middle is missing."""
    first, last = sorted(random.randrange(len(text) + 1) for _ in range(2))
    return text[:first] if random.random() < 0.5 else text[:first] + text[last:]


def repeated(random: Random, text: str) -> str:
    """A piece of the text stands there many times."""
    first = random.randrange(len(text) + 1)
    piece = text[first : first + random.randint(1, 80)]
    return text[:first] + piece * random.choice((2, 50, 500)) + text[first:]


_MUTATIONS: tuple[tuple[int, Callable[[Random, str], str]], ...] = (
    (12, another_value),
    (8, another_number),
    (3, swapped_values),
    (3, lines_moved),
    (2, another_sign),
    (1, cut),
    (1, repeated),
)


def mutated(random: Random, text: str) -> str:
    """The text with one to four mutations."""
    weights, mutations = zip(*_MUTATIONS, strict=True)
    for mutation in random.choices(mutations, weights, k=random.choice((1, 1, 1, 2, 2, 4))):
        text = mutation(random, text)
    return text


def spoiled_bytes(random: Random, content: bytes) -> bytes:
    """Bytes of a file that is no text: some changed, or the end missing."""
    data = bytearray(content)
    for _ in range(random.choice((1, 2, 8))):
        if data:
            data[random.randrange(len(data))] = random.randrange(256)
    return bytes(data[: random.randrange(len(data) + 1)] if random.random() < 0.1 else data)
