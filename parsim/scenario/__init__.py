"""Scenarios: the one file that says what is trained, on what, with which software and plan.

    record.py     what a scenario is once it is read
    load.py       a file and `--set` overrides to that record
    positions.py  YAML to plain data that remembers file:line:column
    schema.py     which keys a file may have (pydantic)
    messages.py   what pydantic found wrong, in words
    build.py      blocks to the model, cluster, plan and jitter records
    write.py      a scenario and a plan back to YAML

pydantic and ruamel.yaml are imported when a scenario is read, not before.
"""

from parsim.scenario.load import load_scenario
from parsim.scenario.record import Scenario
from parsim.scenario.write import scenario_text

__all__ = ["Scenario", "load_scenario", "scenario_text"]
