"""Writes the figures behind intervals of networks, and how these hold where a question is new.

    python -m parsim.fitting.reports.networks EVIDENCE LEFT_OUT INTERVALS SUITES

Networks of convolutions or cells have figures of their own, from the tables of their runs. Leaving
runs out moves no constant: the four that are fitted to some of these rows stay. Pages are filled by
`parsim.report.accuracy.summary` afterwards, from what is written here.
"""

from __future__ import annotations

import sys
from pathlib import Path

from parsim.fitting.constants.influence import LeaveOut
from parsim.fitting.intervals.figures import errors_text, gather_errors, peaks_of, residuals_of
from parsim.fitting.intervals.novelty import Novelty
from parsim.fitting.reports.evidence import evidence_text
from parsim.validation.coverage import left_out_text
from parsim.validation.tables import network_tables
from parsim.validation.validate import validate


def main(evidence: Path, left_out: Path, intervals: Path, suites: Path) -> None:
    """Predict every run of a network; write the files.

    Args:
        evidence: errors per device and software.
        left_out: coverage of intervals where a question is new, and with each table left out.
        intervals: what intervals follow from.
        suites: the folder of the hardware suite's reports, which is read.
    """
    rows = validate(network_tables())
    runs, reports = residuals_of(rows), sorted(suites.glob("*/report.json"))
    novelty = Novelty(runs, gather_errors(runs, reports, peaks_of(rows)), LeaveOut([]))
    evidence.write_text(evidence_text(rows), encoding="utf-8")
    intervals.write_text(errors_text(novelty.figures()), encoding="utf-8")
    left_out.write_text(left_out_text(novelty.left_out()), encoding="utf-8")


if __name__ == "__main__":
    main(*(Path(word) for word in sys.argv[1:]))
