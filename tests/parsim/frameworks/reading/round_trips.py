"""A job that is exported and read again."""

from __future__ import annotations

from pathlib import Path

import pytest

from parsim.frameworks.export import export_plan
from parsim.frameworks.reading import read_config
from parsim.scenario import Scenario, load_scenario
from parsim.sim import simulate


def notes_of_the_same_job_read(scenario: Scenario, target: str, file: Path) -> list[str]:
    """Export to a file, read it on one node, and check that step and memory are the same."""
    file.write_text(export_plan(scenario, scenario.fixed_plan(), target), encoding="utf-8")
    document, notes = read_config(file, scenario.job.system.id, 1)
    made = file.with_name("made.yaml")
    made.write_text(document, encoding="utf-8")
    again = load_scenario(made)
    before, after = (simulate(each.job, each.fixed_plan()) for each in (scenario, again))
    assert after.step_time == pytest.approx(before.step_time, rel=1e-12)
    assert after.peak_allocated == pytest.approx(before.peak_allocated, rel=1e-12)
    return list(notes)
