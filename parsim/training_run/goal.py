"""How long one trains and at what price: the part of a scenario that a step knows nothing of."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from parsim.training_run.failures import Failures

PUE: Final = 1.1
"""Power usage effectiveness of large operators; others have 1.25 (Epoch AI, 2026)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingGoal:
    """What a run is to reach and what its hours cost.

    `tokens` are those to be trained on; None: nobody asks for a whole run. `usd_per_device_hour` is
    the price of one device with its host; None: the catalog's list prices. `pue` is what the site
    draws over what its servers draw.
    """

    tokens: float | None = None
    usd_per_device_hour: float | None = None
    pue: float = PUE
    failures: Failures = field(default_factory=Failures)
