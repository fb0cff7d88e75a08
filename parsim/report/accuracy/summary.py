"""Accuracy in a few lines for the README, and the table of blind tables, as blocks of pages.

    python -m parsim.report.accuracy.summary PAGE...

It stands outside the fits, which know nothing of blind tables, and also keeps what predictions
cite of them (`parsim/validation/data/blind/evidence.json`) and of networks' runs with a strategy
(`parsim/sim/confidence/strategy_runs.json`).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from parsim.report.accuracy.blind import blind_lines, memory_lines, unseen_text
from parsim.report.accuracy.networks import networks_block, networks_line
from parsim.report.accuracy.strategies import strategy_runs_text
from parsim.report.markdown import markdown_table
from parsim.report.writing import fill_pages
from parsim.sim.confidence.strategy_runs import STRATEGY_RUNS
from parsim.units import percent
from parsim.validation.coverage import Coverage, LeftOut, shipped_left_out
from parsim.validation.evidence import UNSEEN
from parsim.validation.tables import JUDGED_ALONE, blind_tables, network_tables, shipped_tables
from parsim.validation.validate import Validation, validate


def summary_block(rows: Validation, left_out: LeftOut, blind: Validation) -> str:
    """Accuracy in a few lines: known runs, what is new, and rows that nobody had seen."""
    columns = "step time of | runs | median error | inside the 80 % interval | its half width"
    cells = (
        (what, f"{of.n:,}", *map(percent, (of.error, of.covered, of.half_width)))
        for what, of in _judged(rows, left_out, blind)
    )
    return "\n".join(markdown_table(columns, cells))


NEW = {
    "model, dense": "a new dense model",
    "model, experts": "a new mixture of experts",
    "device": "a device nobody has measured",
}
"""Levels of what can be new that the summary shows, and what it calls them."""

BLIND = {
    "mlperf_gpt3_175b": "MLPerf's GPT-3 175B",
    "mlperf_llama31_405b": "MLPerf's Llama 3.1 405B",
    "mlperf_deepseek_v3": "MLPerf's DeepSeek-V3",
    "mlperf_llama2_70b_lora": "MLPerf's Llama 2 70B with LoRA",
    "bigscience_176b": "BigScience's 176B to 206B trials",
    "published_trainings": "published trainings",
}
"""What the summary calls the blind tables."""


def _judged(
    rows: Validation, left_out: LeftOut, blind: Validation
) -> Iterator[tuple[str, Coverage]]:
    """The summary's lines; constants and intervals have seen only the runs of the first one."""
    alone = [row for row in rows.rows if row.table in JUDGED_ALONE]
    seen = [row for row in rows.rows if row.table not in JUDGED_ALONE]
    judges = [row for row in alone if row.run is None or row.run.split != "fit"]
    yield "published runs (in sample)", replace(rows, rows=tuple(seen)).coverage()
    levels = {level.level: level.coverage for level in left_out.levels}
    for level, words in NEW.items():
        yield f"{words} (its runs left out)", levels[level]
    words = f"{len(JUDGED_ALONE)} tables of other stacks, makers and publishers (in no fit)"
    yield words, replace(rows, rows=tuple(judges)).coverage()
    for table, words in BLIND.items():
        yield f"{words} (blind: in no fit)", blind.coverage(table)


def main(*pages: Path) -> None:
    """Predict the shipped tables and the blind ones; fill their blocks in the pages."""
    rows, blind = validate(shipped_tables()), validate(blind_tables())
    networks = validate(network_tables())
    new_networks = shipped_left_out("left_out_networks.json")
    blocks = {
        "summary": summary_block(rows, shipped_left_out(), blind),
        "blind": "\n".join([*blind_lines(blind), "", *memory_lines(blind)]),
        "networks": networks_block(networks, new_networks),
        "networks-line": networks_line(networks, new_networks),
    }
    fill_pages(pages, blocks)
    Path(str(UNSEEN)).write_text(unseen_text(blind), encoding="utf-8")
    Path(str(STRATEGY_RUNS)).write_text(strategy_runs_text(networks), encoding="utf-8")


if __name__ == "__main__":
    main(*(Path(word) for word in sys.argv[1:]))
