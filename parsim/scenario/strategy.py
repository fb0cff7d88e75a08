"""The block of a strategy, of a plan or of a search, as a record."""

from __future__ import annotations

from dataclasses import fields

from parsim.errors import alternatives, shown
from parsim.plan.strategies import STRATEGY_KINDS, Strategy
from parsim.scenario.positions import Tree
from parsim.scenario.schema.plan import StrategyBlock

PATH = ("plan", "strategy")


def build_strategy(
    tree: Tree, block: StrategyBlock, path: tuple[str | int, ...] = PATH
) -> Strategy:
    """Make the record of a strategy that stands at a path of the file.

    Raises:
        ScenarioError: a name that is none, or an option that this strategy does not have.
    """
    given = block.given()
    name = given.pop("name")
    where = (*path, "name") if (*path, "name") in tree.positions else path
    if name not in STRATEGY_KINDS:
        rest = alternatives(name, STRATEGY_KINDS, listing="parsim catalog strategies")
        raise tree.error(where, f"'{shown(name)}' is unknown{rest}")
    kind = STRATEGY_KINDS[name]
    options = [field.name for field in fields(kind)]
    for option in given:
        if option not in options:
            raise tree.error((*path, option), _strange(name, option, options))
    for option in ("branches", "mesh", "layout"):
        if option in given:
            given[option] = tuple(given[option].items())
    if "signatures" in given:
        stated = given["signatures"].items()
        given["signatures"] = tuple((node, tuple(parts.items())) for node, parts in stated)
    return kind(**given)


def _strange(name: str, option: str, options: list[str]) -> str:
    """An option of other strategies: whose it is, and what there is instead."""
    others = [
        other
        for other, kind in STRATEGY_KINDS.items()
        if option in {field.name for field in fields(kind)}
    ]
    has = f"its options: {', '.join(options)}" if options else "it has no options"
    return f"is no option of name={name}, but of {', '.join(others)}; {has}"
