"""Scenarios: a file comes in; records of what is trained, on what and how, leave.

What is wrong is told as `file:line:column field message`.

    record.py     what a scenario is once it is read
    load.py       a file and `--set` overrides to that record
    positions.py  YAML to plain data that remembers file:line:column
    other_files.py  what is no scenario, and the command that takes it
    schema/       which keys a file may have (pydantic)
    messages.py   what pydantic found wrong, in words
    build.py      blocks to records, with model.py, hardware.py, plan.py, schedule.py and space/
    beside.py     several scenarios on one cluster
    of_search.py  overrides that a search would not read, refused
    write.py      a scenario and a plan back to YAML
    written.py    values as a file writes them
    starter.py    the first scenario of `parsim init`

pydantic and ruamel.yaml are imported when a scenario is read, not before.
"""

from parsim.scenario.load import load_scenario, stated_ranks
from parsim.scenario.record import Scenario
from parsim.scenario.write import scenario_text

__all__ = ["Scenario", "load_scenario", "scenario_text", "stated_ranks"]
