"""Errors of networks' runs and of published speed-ups, as blocks of pages."""

from __future__ import annotations

from collections.abc import Iterator

from parsim.report.text.tables import percent
from parsim.validation.summary import Summary, summarise
from parsim.validation.validate import Validation


def networks_block(rows: Validation) -> str:
    """A line for each table and what its rows state: step times or speed-ups."""
    lines = [
        f"| {table} | {what} | {summary.n} | {summary.n_skipped} | "
        f"{percent(summary.mean_abs_error)} | {percent(summary.median_abs_error)} | "
        f"{percent(summary.max_abs_error)} | {percent(summary.bias, signed=True)} |"
        for table, what, summary in _summaries(rows)
    ]
    head = "| table | of | n | skipped | mean | median | largest | bias |"
    return "\n".join([head, "|---|---|--:|--:|--:|--:|--:|--:|", *lines])


def networks_line(rows: Validation) -> str:
    """All of it in one sentence."""
    steps = [row.error for row in rows.rows if row.error is not None]
    gains = [row.speedup_error for row in rows.rows if row.speedup_error is not None]
    return (
        f"Networks that are not transformers, servers and pipelines: {_words(steps)} of "
        f"{len(steps)} step times, {_words(gains)} of {len(gains)} published speed-ups "
        f"([every table](docs/accuracy.md#networks-that-are-not-transformers))."
    )


def _summaries(rows: Validation) -> Iterator[tuple[str, str, Summary]]:
    for table in rows.tables:
        for what, summary in (
            ("step time", rows.summary(table)),
            ("speed-up", rows.speedup_summary(table)),
            ("peak memory", rows.memory_summary(table)),
        ):
            if summary.n:
                yield table, what, summary


def _words(errors: list[float]) -> str:
    summary = summarise(errors, 0)
    return f"median error {percent(summary.median_abs_error)}"
