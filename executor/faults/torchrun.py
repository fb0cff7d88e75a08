"""Starts torchrun so that it and its ranks end when the process that started it does."""

from __future__ import annotations

import os

from executor.faults.parent import end_with_parent
from parsim.launch.ranks import PARENT


def main() -> None:
    """Be torchrun, bound to the parent; the ranks are bound to this process in turn."""
    end_with_parent()
    os.environ[PARENT] = str(os.getpid())
    from torch.distributed import run

    run.main()


if __name__ == "__main__":
    main()
