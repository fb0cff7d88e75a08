"""Which rules plans break and how often: messages that differ in the value alone are one rule."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

_VALUE = re.compile(r"^(\w+)=(\d+)\b")
MOST_VALUES = 6
"""Values that the words name; of more the first ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokenRule:
    """A rule that plans break: in words, how many, and the values of the field that break it."""

    words: str
    plans: int
    values: tuple[int, ...]


def by_rule(reasons: Mapping[str, int]) -> tuple[BrokenRule, ...]:
    """Messages and their counts by rule, that which most plans break first.

    `tp=64 does not divide num_attention_heads=96; allowed: ...` and the same of tp=128 are one rule
    with two values.
    """
    plans: dict[str, int] = {}
    values: dict[str, list[int]] = {}
    for message, count in reasons.items():
        match = _VALUE.match(message)
        rule = f"{match[1]}={{}}{message[match.end() :]}" if match else message
        plans[rule] = plans.get(rule, 0) + count
        if match:
            values.setdefault(rule, []).append(int(match[2]))
    rules = [
        BrokenRule(
            words=_words(rule, values.get(rule, [])),
            plans=count,
            values=tuple(sorted(values.get(rule, []))),
        )
        for rule, count in plans.items()
    ]
    return tuple(sorted(rules, key=lambda rule: (-rule.plans, rule.words)))


def _words(rule: str, values: list[int]) -> str:
    """The rule's message with all values in the place of one."""
    if not values:
        return rule
    named = [str(value) for value in sorted(values)]
    more = [f"... {named[-1]}"] if len(named) > MOST_VALUES else []
    return rule.replace("{}", "|".join([*named[:MOST_VALUES], *more]), 1)
