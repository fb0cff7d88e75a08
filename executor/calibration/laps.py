"""Which share of a calibration's seconds each of its parts may take, and when each ended."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from itertools import pairwise

SHARES = {"kernels": 0.32, "layers": 0.35, "links": 0.15}
"""Shares of the seconds given; the rest is for starting ranks, making inputs, and the fit. Layers
have most: one of them that is timed as a whole corrects all of its kernels, and what lies between
them."""
PARTS = ("links", "kernels", "layers", "fit")
"""In this order; the document says how many seconds each took."""
LAST = {"kernels": 0.55, "layers": 0.95}
"""After this share of them a part begins nothing more, once it has had its own seconds."""


@dataclass(slots=True)
class Laps:
    """When a calibration of so many seconds began, and when each of its PARTS ended."""

    seconds: float
    began: float = field(default_factory=time.perf_counter)
    ends: list[float] = field(default_factory=list)

    def limit(self, part: str) -> float:
        """Seconds that a part may take."""
        return SHARES[part] * self.seconds

    def until(self, part: str) -> float:
        """When a part begins nothing more, once it has had its own seconds."""
        return self.began + LAST[part] * self.seconds

    def end(self) -> None:
        """A part, or the start before the first, is over."""
        self.ends.append(time.perf_counter())

    def to_json(self) -> dict[str, float]:
        """Seconds of each part."""
        lasted = (end - start for start, end in pairwise(self.ends))
        return dict(zip(PARTS, lasted, strict=True))
