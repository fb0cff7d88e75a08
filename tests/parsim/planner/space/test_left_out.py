"""Messages of one rule are told once."""

from __future__ import annotations

from parsim.planner.space.left_out import by_rule


def test_values_of_one_field_are_joined() -> None:
    rules = by_rule(
        {
            "tp=64 does not divide heads=96; allowed: 1, 2": 7,
            "tp=128 does not divide heads=96; allowed: 1, 2": 5,
            "pp=3 is one too many": 1,
        }
    )
    assert [(rule.words, rule.plans) for rule in rules] == [
        ("tp=64|128 does not divide heads=96; allowed: 1, 2", 12),
        ("pp=3 is one too many", 1),
    ]


def test_where_several_values_differ_one_is_an_example() -> None:
    rules = by_rule({"pp=2 does not divide m=1": 3, "pp=4 does not divide m=3": 4})
    assert [(rule.words, rule.plans) for rule in rules] == [
        ("pp=... does not divide m=...; e.g. pp=4 does not divide m=3", 7)
    ]


def test_no_plan_is_lost() -> None:
    reasons = {f"tp={n} does not divide heads=96": n for n in range(10)} | {"other": 3}
    assert sum(rule.plans for rule in by_rule(reasons)) == sum(reasons.values())
    assert by_rule({}) == ()
