"""Scenarios: a file comes in; records of what is trained, on what and how, leave.

What is wrong is told as `file:line:column field message`.

    record.py       what a scenario is once it is read
    load.py         a file and `--set` overrides to that record
    positions.py    YAML to plain data that remembers file:line:column
    other_files.py  what is no scenario, and the command that takes it
    schema/         which keys a file may have (pydantic)
    messages.py     what pydantic found wrong, in words
    build.py        blocks to records
    model.py        the model block
    hardware.py     the cluster block
    plan.py         the plan block
    schedule.py     the file of a schedule that it names
    strategy.py     the strategy block, of plans and searches
    search_space.py the search block
    space/          axes of the search block, and their words
    beside.py       several scenarios on one cluster
    of_search.py    overrides that a search would not read, refused
    writing/        a scenario and a plan back to YAML
    starter.py      the first scenario of `parsim init`

pydantic and ruamel.yaml are imported when a scenario is read, not before.
"""

from parsim.scenario.load import load_scenario, stated_ranks
from parsim.scenario.record import Scenario
from parsim.scenario.writing.document import scenario_text

__all__ = ["Scenario", "load_scenario", "scenario_text", "stated_ranks"]
