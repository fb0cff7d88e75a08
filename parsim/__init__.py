"""Predicts what one training step of a split model costs, before anybody launches it.

    import parsim

    scenario = parsim.load_scenario("scenario.yaml")
    result = parsim.search(scenario.job, scenario.plan_space())

Names are loaded at first use, so that `import parsim` costs next to nothing.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
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
    from parsim.plan import Plan
    from parsim.scenario import load_scenario
    from parsim.schedule.schedule import Schedule
    from parsim.search import search
    from parsim.sim import simulate
    from parsim.timeline import Timeline

    __version__: str

__all__ = [
    "CatalogError",
    "DeadlockError",
    "InputError",
    "ModelError",
    "NoFeasiblePlan",
    "ParsimError",
    "Plan",
    "PlanError",
    "ScenarioError",
    "Schedule",
    "ScheduleError",
    "TableError",
    "Timeline",
    "ToleranceExceeded",
    "UnitError",
    "__version__",
    "load_scenario",
    "search",
    "simulate",
]

_HOMES = {
    "Plan": "parsim.plan",
    "Schedule": "parsim.schedule.schedule",
    "Timeline": "parsim.timeline",
    "load_scenario": "parsim.scenario",
    "simulate": "parsim.sim",
}

if not TYPE_CHECKING:  # a type checker that saw this would take any name for one of ours

    def __getattr__(name: str) -> object:
        """Load a public name at its first use (PEP 562)."""
        from importlib import import_module

        if name == "__version__":
            value = _version()
        elif name == "search":
            return import_module("parsim.search")  # callable, see _CallablePackage
        elif name in __all__:
            value = getattr(import_module(_HOMES.get(name, "parsim.errors")), name)
        else:
            raise AttributeError(f"module 'parsim' has no attribute {name!r}")
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    """List the public names, loaded or not."""
    return sorted({*globals(), *__all__})


def _version() -> str:
    """Return the installed version; a checkout on the path that nobody installed has none."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("parsim")
    except PackageNotFoundError:
        return "0+uninstalled"


class _CallablePackage(ModuleType):
    """The package `parsim.search`, which searches when it is called."""

    def __call__(self, *args: object, **kwargs: object) -> object:
        """Call `parsim.search.search`."""
        found: object = self.search(*args, **kwargs)
        return found


class _Front(ModuleType):
    """This package, where `search` is both the name of a package and that of its function.

    The import system binds a package's name in its parent, over a function that stood there, the
    moment anything imports from it. So `parsim.search` is always the package, and callable.
    """

    def __setattr__(self, name: str, value: object) -> None:
        if name == "search" and isinstance(value, ModuleType):
            value.__class__ = _CallablePackage
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Front
