"""Predicts what one training step of a split model costs, before anybody launches it.

    import parsim

    scenario = parsim.load_scenario("scenario.yaml")
    prediction = parsim.simulate(scenario)      # step time, memory, bubble of the scenario's plan
    prediction.timeline.plot().savefig("step.png")
    ranked = parsim.search(scenario, top=5)     # every legal plan; ranked.to_pandas() is a table

A scenario comes in; a `Prediction`, `SearchResult`, `Timeline` or another result leaves. Each
prints as its command prints it, shows itself in a notebook (`_repr_html_`), and converts
(`to_dict`, `records`, `to_pandas`); timelines, validations and collectives draw (`plot`).

Names are loaded at first use, so that `import parsim` costs next to nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from parsim.results import Display, shown_by

if TYPE_CHECKING:
    from parsim.api import collectives, compare, search, simulate, timeline, validate, whole_run
    from parsim.cluster.hardware import Cluster
    from parsim.errors import (
        CatalogError,
        DeadlockError,
        InputError,
        ModelError,
        NoFeasiblePlan,
        ParsimError,
        PlanError,
        ScenarioError,
        ScheduleError,
        TableError,
        ToleranceExceeded,
        UnitError,
    )
    from parsim.model.model import Model
    from parsim.plan import Plan
    from parsim.planner import SearchResult
    from parsim.scenario import Scenario, load_scenario
    from parsim.schedule.schedule import Schedule
    from parsim.sim import Prediction
    from parsim.timelines.timeline import Timeline
    from parsim.training_run.training_run import TrainingRun

__version__ = "0.2.0"

__all__ = [
    "CatalogError",
    "Cluster",
    "DeadlockError",
    "InputError",
    "Model",
    "ModelError",
    "NoFeasiblePlan",
    "ParsimError",
    "Plan",
    "PlanError",
    "Prediction",
    "Scenario",
    "ScenarioError",
    "Schedule",
    "ScheduleError",
    "SearchResult",
    "TableError",
    "Timeline",
    "ToleranceExceeded",
    "TrainingRun",
    "UnitError",
    "__version__",
    "collectives",
    "compare",
    "load_scenario",
    "search",
    "simulate",
    "timeline",
    "validate",
    "whole_run",
]

_MODULES = {
    "Cluster": "parsim.cluster.hardware",
    "Model": "parsim.model.model",
    "Plan": "parsim.plan",
    "Prediction": "parsim.sim",
    "Scenario": "parsim.scenario",
    "Schedule": "parsim.schedule.schedule",
    "SearchResult": "parsim.planner",
    "Timeline": "parsim.timelines.timeline",
    "TrainingRun": "parsim.training_run.training_run",
    "collectives": "parsim.api",
    "compare": "parsim.api",
    "load_scenario": "parsim.scenario",
    "search": "parsim.api",
    "simulate": "parsim.api",
    "timeline": "parsim.api",
    "validate": "parsim.api",
    "whole_run": "parsim.api",
}
"""Where each name is defined; those not listed are errors."""

if not TYPE_CHECKING:  # a type checker that saw this would take any name for one of ours

    def __getattr__(name: str) -> object:
        """Load a public name at its first use (PEP 562)."""
        from importlib import import_module

        if name not in __all__:
            raise AttributeError(f"module 'parsim' has no attribute {name!r}")
        value = getattr(import_module(_MODULES.get(name, "parsim.errors")), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    """List the public names, loaded or not."""
    return sorted({*globals(), *__all__})


def _display() -> Display:
    """Load the words and pictures of results."""
    from parsim.report import display

    return display


shown_by(_display)
