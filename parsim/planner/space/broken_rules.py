"""Which rules plans break and how often: messages that differ in the value alone are one rule."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

_VALUE = re.compile(r"(?<==)\d+\b")
MOST_VALUES = 6
"""Values that the words name; of more the first ones and the last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokenRule:
    """A rule that plans break, in words, and how many break it first."""

    words: str
    plans: int


def by_rule(reasons: Mapping[str, int]) -> tuple[BrokenRule, ...]:
    """Messages and their counts by rule, that which most plans break first.

    `tp=64 does not divide num_attention_heads=96; allowed: ...` and the same of tp=128 are one
    rule, told as tp=64|128; where several values differ, the message of most plans is an example.
    """
    groups: dict[str, dict[str, int]] = {}
    for message, count in reasons.items():
        rule = _VALUE.sub("...", message.partition(";")[0])
        groups.setdefault(rule, {})[message] = count
    rules = [
        BrokenRule(words=_words(rule, messages), plans=sum(messages.values()))
        for rule, messages in groups.items()
    ]
    return tuple(sorted(rules, key=lambda rule: (-rule.plans, rule.words)))


def _words(rule: str, messages: Mapping[str, int]) -> str:
    """One text for messages that differ in their values."""
    most = max(messages, key=lambda message: messages[message])
    if len(messages) == 1:
        return most
    numbers = [_VALUE.findall(message.partition(";")[0]) for message in messages]
    columns = list(zip(*numbers, strict=True))
    varying = [number for number, column in enumerate(columns) if len(set(column)) > 1]
    if len(varying) != 1:
        return f"{rule}; e.g. {most}"
    values = sorted({int(value) for value in columns[varying[0]]})
    named = [str(value) for value in values[:MOST_VALUES]]
    named += [f"... {values[-1]}"] if len(values) > MOST_VALUES else []
    head, sign, tail = most.partition(";")
    match = list(_VALUE.finditer(head))[varying[0]]
    return f"{head[: match.start()]}{'|'.join(named)}{head[match.end() :]}{sign}{tail}"
