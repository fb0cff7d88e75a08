"""What-ifs: scenario files and values of their fields come in, one row a case leaves.

A sweep is every combination of some values, a comparison of plans one case a file; both are the
same table, picture and CSV.
"""

from parsim.sweeps.case import SweepCase, cases_of_files, cases_over, read_over
from parsim.sweeps.run import Outcome, Outcomes, run_cases

__all__ = [
    "Outcome",
    "Outcomes",
    "SweepCase",
    "cases_of_files",
    "cases_over",
    "read_over",
    "run_cases",
]
