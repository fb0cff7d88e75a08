"""All cases of `same_numbers`, by a stable id, and how to choose among them."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatch

from tests.tools.same_numbers.case import Case
from tests.tools.same_numbers.clusters import CLUSTER_GROUPS, beside_cases
from tests.tools.same_numbers.commands import command_cases
from tests.tools.same_numbers.errors import error_cases
from tests.tools.same_numbers.kernels import KERNEL_GROUPS
from tests.tools.same_numbers.plans import PLAN_GROUPS
from tests.tools.same_numbers.scenarios import scenario_cases, search_cases

GROUPS = (*PLAN_GROUPS, *KERNEL_GROUPS, *CLUSTER_GROUPS)


def all_cases() -> list[Case]:
    """Every case that is compared."""
    variants = [case for group in GROUPS for case in group.cases()]
    return [
        *scenario_cases(),
        *search_cases(),
        *command_cases(),
        *error_cases(),
        *variants,
        *beside_cases(),
    ]


def matches(name: str, pattern: str | None) -> bool:
    """Whether an id is asked for: the pattern is a part of it, or a glob of the whole."""
    return pattern is None or pattern in name or fnmatch(name, pattern)


def chosen_cases(pattern: str | None, *, quick: bool) -> list[Case]:
    """The cases asked for, those that take longest first."""
    cases = [case for case in all_cases() if case.quick or not quick]
    return sorted(
        (case for case in cases if matches(case.id, pattern)), key=lambda case: -case.seconds
    )


def cheap_first(cases: Iterable[Case]) -> list[Case]:
    """Cases in the order in which few minutes hold most: the short run's, then the cheap ones."""
    return sorted(cases, key=lambda case: (not case.quick, case.seconds))
