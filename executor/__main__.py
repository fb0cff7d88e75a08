"""The command behind `python -m executor`."""

from __future__ import annotations

import sys

EXIT_USAGE = 2

MESSAGE = """\
executor: running plans on devices is not in this release.
What is: parsim simulate, parsim search, parsim timeline and parsim validate (see parsim --help).
"""


def main() -> int:
    """Say that nothing can be run here yet, and what can be done instead."""
    sys.stderr.write(MESSAGE)
    return EXIT_USAGE


if __name__ == "__main__":
    raise SystemExit(main())
