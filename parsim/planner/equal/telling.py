"""Progress of a search on equal nodes: how many of its plans are decided."""

from __future__ import annotations

import time
from collections.abc import Callable

from parsim.planner.result import Progress

QUIET = 20.0
"""How many times as long as counting what is decided took a search works before it tells again."""


class Telling:
    """Tells how many plans are decided, as often as counting them costs little of the search."""

    def __init__(self, progress: Progress | None, total: int) -> None:
        self.progress, self.total = progress, total
        self.told, self.again = 0, 0.0

    def tell(self, decided: Callable[[], int], *, last: bool = False) -> None:
        """Count and tell, unless that was done a moment ago."""
        begin = time.perf_counter()
        if self.progress is None or (begin < self.again and not last):
            return
        done, end = decided(), time.perf_counter()
        self.again = end + QUIET * (end - begin)
        if done > self.told:
            self.told = done
            self.progress(done, self.total)
