"""What a program tells whoever waits for it: lines on stderr, for stdout has its results."""

from __future__ import annotations

import sys


def say(text: str) -> None:
    """Tell what is done now, or what is to be known; one line."""
    sys.stderr.write(f"{text}\n")
