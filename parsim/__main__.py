"""The command `parsim`, also as `python -m parsim`."""

from __future__ import annotations

import gc

COLLECTED = 1_000_000
"""New objects after which garbage is looked for. Modules and models are many objects that stay;
looking through them as often as usual, after 700, takes a tenth of a short command's time, half
of it while modules are imported."""


def main() -> int:
    """Run the command line, its modules imported behind this setting; the exit code."""
    gc.set_threshold(COLLECTED)
    from parsim.cli.app import main as command

    return command()


if __name__ == "__main__":
    raise SystemExit(main())
