"""Values of an axis as people write them: one, a list, or a range in words."""

from __future__ import annotations

import re
from dataclasses import replace

from pydantic import ValidatorFunctionWrapHandler
from pydantic_core import PydanticCustomError, PydanticKnownError

from parsim.errors import shown
from parsim.plan.space import FEWEST, FEWEST_WORD, Between

_WORDS = re.compile(r"(<=|>=|not)\s*(\d+(?:\s*,\s*\d+)*)|(\d+)\s*\.\.\s*(\d+)", re.ASCII)


def range_or_numbers(value: object, numbers: ValidatorFunctionWrapHandler) -> object:
    """Read a range from text, and leave all else to `numbers`, which checks a list.

    Raises:
        PydanticCustomError: as `read_axis`.
        PydanticKnownError: the list is empty.
    """
    read = read_axis(value)
    if read == []:
        sizes = {"field_type": "List", "min_length": 1, "actual_length": 0}
        raise PydanticKnownError("too_short", sizes)
    return read if isinstance(read, Between) else numbers(read)


def range_or_counts(value: object, numbers: ValidatorFunctionWrapHandler) -> object:
    """Read what `range_or_numbers` does, of numbers from 1 on, with its errors.

    Raises:
        PydanticCustomError: a range that ends below 1.
    """
    read = range_or_numbers(value, numbers)
    if isinstance(read, Between) and read.most is not None and read.most < 1:
        raise _wrong(f"'{shown(value)}' leaves no value: they begin at 1")
    return read


def fewest_or_numbers(value: object, numbers: ValidatorFunctionWrapHandler) -> object:
    """Read "fewest", and what `range_or_numbers` does, with its errors."""
    if isinstance(value, str) and value.strip().lower() == FEWEST_WORD:
        return (FEWEST,)
    try:
        return range_or_numbers(value, numbers)
    except PydanticCustomError as error:
        raise _wrong(f"{error.message()}; or {FEWEST_WORD}, as few as fit") from None


def read_axis(value: object) -> object:
    """Read "<= 8", ">= 2", "2..16", "not 4, 8", or several with "and"; one value is a list of one.

    What is no text is left to who checks numbers and lists.

    Raises:
        PydanticCustomError: text that is no range, or that leaves no value.
    """
    if not isinstance(value, str):
        return value if isinstance(value, list | dict) or value is None else [value]
    between = Between()
    for words in value.split(" and "):
        match = _WORDS.fullmatch(words.strip())
        if match is None:
            raise _wrong(
                f"'{shown(value)}' is no range; write a number, a list such as [1, 2, 4], or in "
                f'quotes "<= 8", ">= 2", "2..16" or "not 4, 8", with \'and\' between several'
            )
        between = _narrowed(between, match)
    if between.most is not None and between.least > between.most:
        ends = f"{between.least} is above {between.most}"
        raise _wrong(f"'{shown(value)}' leaves no value: {ends}")
    return between


def _narrowed(between: Between, match: re.Match[str]) -> Between:
    """A range and one more condition."""
    if match[3]:
        return _ended(between, int(match[3]), int(match[4]))
    numbers = tuple(int(number) for number in re.findall(r"\d+", match[2]))
    if match[1] == "not":
        return replace(between, excluded=(*between.excluded, *numbers))
    if len(numbers) > 1:
        raise _wrong(f"'{match[0]}' has several numbers; allowed: one")
    least, most = (numbers[0], None) if match[1] == ">=" else (0, numbers[0])
    return _ended(between, least, most)


def _ended(between: Between, least: int, most: int | None) -> Between:
    ends = [end for end in (between.most, most) if end is not None]
    return replace(between, least=max(between.least, least), most=min(ends, default=None))


def _wrong(text: str) -> PydanticCustomError:
    return PydanticCustomError("axis", "{text}", {"text": text})
