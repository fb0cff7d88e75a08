"""The bar of a long command: what is done, how fast, and a search's best so far with its gap."""

from __future__ import annotations

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
)
from rich.text import Text

from parsim.report.text.tables import console
from parsim.units import format_seconds


class RateColumn(ProgressColumn):
    """How many are done in a second: 12,345/s."""

    def render(self, task: Task) -> Text:
        """Nothing until two are done."""
        speed = task.finished_speed or task.speed
        return Text("" if speed is None else f"{speed:,.0f}/s")


class ProgressBar:
    """One bar; called with (done, total)."""

    def __init__(self, bar: Progress, what: str) -> None:
        self.bar, self.what = bar, what
        self.task = bar.add_task(what, total=None)

    def __call__(self, done: int, total: int) -> None:
        """Move the bar."""
        self.bar.update(self.task, completed=done, total=total)

    def sighted(self, best: float, gap: float) -> None:
        """Say the best step so far and by how much the best of all may be faster."""
        words = f"{self.what}: best {format_seconds(best)}, gap {100.0 * gap:.1f} %"
        self.bar.update(self.task, description=words)


def shown_bar() -> Progress:
    """An empty bar on stderr."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        RateColumn(),
        TimeElapsedColumn(),
    )
    return Progress(*columns, console=console(stderr=True), transient=True)
