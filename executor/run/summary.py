"""What rank 0 leaves for people at the end of a run: the curve of the loss, and a summary.

`parsim run` prints the summary itself; a script of `parsim run --emit` has nobody else to do so.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from parsim.scenario import Scenario

WROTE = "PARSIM_WROTE"
"""Names the file by which a launcher learns that rank 0 was among its ranks, of several nodes."""


def draw(
    scenario: Scenario, document: dict[str, Any], losses: Sequence[float], warmup: int, path: Path
) -> None:
    """Draw the losses."""
    from parsim.report.picture.loss import draw_loss

    draw_loss(
        losses,
        warmup=warmup,
        vocab_rows=_classes(scenario),
        title=f"{scenario.job.model.name} on {document['device']}",
        plan=scenario.fixed_plan().label(),
        path=path,
    )


def present(document: dict[str, Any], out: Path) -> None:
    """Tell the launcher, or print the summary where there is none."""
    from rich.console import Console

    from parsim.report.text.run import run_view

    if path := os.environ.get(WROTE):
        Path(path).touch()
    else:
        Console(width=None if os.isatty(1) else 160).print(run_view(document, str(out)))


def _classes(scenario: Scenario) -> int:
    """Among how many a guess is made, whose loss is the logarithm of that."""
    loss = scenario.job.model.loss
    return loss.vocab_size if loss is not None else 1
