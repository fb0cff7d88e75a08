"""How tensor parallelism divides an operator."""

from __future__ import annotations

from enum import Enum


class Split(Enum):
    """How tensor parallelism divides a matrix: by outputs, by inputs, or not at all."""

    COLUMN = "column"
    ROW = "row"
    NONE = "none"


class Region(Enum):
    """Where an operator sits: inside the tensor-parallel region its width is divided by tp.

    In the sequence region every tensor-parallel rank repeats the work on all tokens, unless
    sequence parallelism divides the tokens by tp.
    """

    TENSOR = "tensor"
    SEQUENCE = "sequence"
