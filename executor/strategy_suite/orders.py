"""Orders to ranks: what they are to measure goes to a file, what they measured comes from one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from executor.faults.messages import say
from parsim.errors import RunError
from parsim.files import read_json
from parsim.launch.nodes import ONE_NODE
from parsim.launch.ranks import torchrun
from parsim.report.writing import write_text

TIMEOUT = 1500.0
"""Seconds after which ranks are taken to hang."""


def on_ranks(folder: Path, count: int, order: Mapping[str, Any]) -> Any:  # noqa: ANN401
    """Let so many ranks do what an order says; what they measured.

    Raises:
        RunError: they failed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / "order.json", json.dumps(order) + "\n")
    say(f"{order['what']}: {count} ranks")
    words = ["executor.strategy_suite.ranks", str(folder)]
    code = torchrun(
        ONE_NODE.torchrun_words(count),
        words,
        folder / "log.txt",
        lambda process: process.wait(TIMEOUT),
    )
    if code:
        raise RunError(f"the ranks of {order['what']} failed; see {folder}/log.txt")
    return read_json(folder / "measured.json")
