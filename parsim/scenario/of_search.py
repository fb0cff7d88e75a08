"""Fields of a plan block that only a search understands, with the block they belong in."""

from __future__ import annotations

from collections.abc import Iterable

from parsim.errors import InputError
from parsim.plan import Plan
from parsim.space.axes import BY_NAME


def check_of_search(keys: Iterable[str], plan: Plan | None) -> None:
    """Refuse fields of the scenario's plan, which a search does not read.

    It takes a schedule of the user's own from there, with what that decides, and nothing else.

    Args:
        keys: dotted keys that were given other values.
        plan: the scenario's plan.

    Raises:
        InputError: a key is one of the plan's; says which key of the search block it wants.
    """
    if plan is not None and plan.from_file:
        return
    for key in keys:
        block, _, name = key.partition(".")
        if block == "plan" and name:
            wanted = f"search.{name}" if name in BY_NAME else f"search.common.{name}"
            raise InputError(
                f"{key} changes the plan that `parsim simulate` shows; a search looks at the plans "
                f"that the search block allows: set {wanted} instead"
            )
