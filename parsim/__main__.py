"""`python -m parsim` is the command `parsim`."""

from __future__ import annotations

from parsim.cli.app import main

if __name__ == "__main__":
    raise SystemExit(main())
