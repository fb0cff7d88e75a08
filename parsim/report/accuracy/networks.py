"""Accuracy over the tables of networks' runs: blocks of the pages.

Of convolutional networks, of servers and pipelines; their intervals rest on these runs alone.
"""

from __future__ import annotations

from collections.abc import Iterator

from parsim.report.markdown import markdown_table
from parsim.units import percent
from parsim.validation.coverage import LeftOut, Summary, summarise
from parsim.validation.validate import Validation

NETWORK_LEVELS = {
    "nothing": "nothing (other runs of the network and the device)",
    "model, dense": "network",
    "device": "device",
    "software": "framework, or that framework on the device",
    "source": "source: everything of a table",
}
"""Levels of what can be new of a network, and what its page calls them."""


def networks_block(rows: Validation, left_out: LeftOut) -> str:
    """A line for each table and what its rows state, and one for each way of being new."""
    return "\n".join([*_networks_tables(rows), "", LEVELS_OF_NETWORKS, "", *_new_lines(left_out)])


LEVELS_OF_NETWORKS = """\
Their intervals come from these rows' step times alone (`interval_networks.json`). Each group of
runs left out once (one network's, one device's, ...), judged by figures without them. Constants
stay as they are: all but five are measured or counted elsewhere (replicas under PyTorch, a P40's
convolutions; a K80's 1x1 and MXNet's host, fitted to 20 of mxnet_one_device's rows; values a second
that change their layout, fitted to nine of lambda_resnet50_2023's):"""


def _new_lines(left_out: LeftOut) -> list[str]:
    """How intervals of networks hold where something is new."""
    columns = "new is the | runs | inside | half width | median error | mean error | bias"
    levels = {level.level: level for level in left_out.levels}
    cells = (
        (
            *(words, level.coverage.n),
            *map(percent, (level.coverage.covered, level.coverage.half_width)),
            *map(percent, (level.coverage.error, level.mean)),
            percent(level.bias, signed=True),
        )
        for words, level in ((words, levels[name]) for name, words in NETWORK_LEVELS.items())
    )
    return list(markdown_table(columns, cells))


def _networks_tables(rows: Validation) -> list[str]:
    columns = "table | of | n | skipped | mean | median | largest | bias"
    cells = (
        (
            *(table, what, summary.n, summary.n_skipped),
            *map(percent, (summary.mean_abs_error, summary.median_abs_error)),
            percent(summary.max_abs_error),
            percent(summary.bias, signed=True),
        )
        for table, what, summary in _summaries(rows)
    )
    return list(markdown_table(columns, cells, words=(0, 1)))


def networks_line(rows: Validation, left_out: LeftOut) -> str:
    """All of it in two sentences."""
    steps = [row.error for row in rows.rows if row.error is not None]
    gains = [row.speedup_error for row in rows.rows if row.speedup_error is not None]
    judged = rows.coverage(None)
    inside, half_width = map(percent, (judged.covered, judged.half_width))
    levels = {level.level: percent(level.coverage.covered) for level in left_out.levels}
    return (
        f"Networks that are not transformers, servers and pipelines: {_words(steps)} of "
        f"{len(steps)} step times, {_words(gains)} of {len(gains)} published speed-ups "
        f"([every table](docs/accuracy.md#networks-that-are-not-transformers)). Their 80 % "
        f"intervals hold {inside} of {judged.n} with a half width of {half_width}, "
        f"{levels['model, dense']} of those of a network and {levels['device']} of a device that "
        f"is left out."
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
