"""The table of weight versions: the papers' formulas, and what 1F1B's order alone implies."""

from __future__ import annotations

import pytest

from parsim.errors import ScheduleError
from parsim.schedule import Kind, build_schedule
from parsim.schedule.versions import Versions


@pytest.mark.parametrize("pp", [2, 3, 5])
def test_stashing_is_the_newest_version_when_a_forward_starts(pp: int) -> None:
    """In 1F1B's order, whoever takes the newest weights takes max(0, M - (p - s) + 1)."""
    versions = Versions(rule="pipedream", pp=pp)
    for stage, row in enumerate(build_schedule("1f1b", pp=pp, num_microbatches=20).ranks):
        newest = 0
        for _, kind, mb in row:
            if kind == Kind.F:
                assert versions.used(stage, mb) == newest
            else:
                newest += 1


def test_vertical_sync_is_what_the_first_stage_used() -> None:
    synced, stashed = (
        Versions(rule=rule, pp=4) for rule in ("pipedream_vertical_sync", "pipedream")
    )
    for mb in range(12):
        assert {synced.used(stage, mb) for stage in range(4)} == {stashed.used(0, mb)}
    assert [synced.kept(stage) for stage in range(4)] == [4, 4, 4, 4]
    assert [stashed.kept(stage) for stage in range(4)] == [4, 3, 2, 1]
    assert [stashed.delay(stage) for stage in range(4)] == [3, 2, 1, 0]


def test_two_versions_are_one_batch_late() -> None:
    """W(t + 1) = W(t) - lr grad(W(t - 1)): batch t uses version t - 1, the first two the first."""
    versions = Versions(rule="pipedream_2bw", pp=4, batch=4)
    assert [versions.used(2, mb) for mb in range(0, 20, 4)] == [0, 0, 1, 2, 3]
    assert [versions.made(2, mb) for mb in range(8)] == [None] * 3 + [1] + [None] * 3 + [2]
    assert [versions.delay(stage) for stage in range(4)] == [1, 1, 1, 1]


def test_batches_of_one_less_than_the_stages_suffice() -> None:
    """In 1F1B's order a version is made before it is used, and two are enough."""
    short = Versions(rule="pipedream_2bw", pp=4, batch=3)
    for stage, row in enumerate(build_schedule("1f1b", pp=4, num_microbatches=21).ranks):
        newest = 0
        for _, kind, mb in row:
            if kind == Kind.F:
                assert newest - 1 <= short.used(stage, mb) <= newest
            elif short.made(stage, mb) is not None:
                newest += 1


def test_replicas_that_do_not_wait_use_the_newest_weights_of_a_round_before() -> None:
    """The update of round k is behind the backward of round k + 1; versions are as many."""
    versions = Versions(rule="pipedream", pp=2, counts=(3, 1), late=(1, 0))
    for stage, count in enumerate(versions.replicas.counts):
        newest, rounds = 0, 0
        for _, kind, mb in versions.replicas.rows(24)[versions.replicas.ranks(stage)[0]]:
            if kind == Kind.F:
                assert versions.used(stage, mb) == newest
            else:
                rounds += 1
                newest = max(0, rounds - versions.lateness(stage))
        assert rounds == 24 // count
    assert [versions.kept(stage) for stage in (0, 1)] == [2, 1]
    assert [versions.delay(stage) for stage in (0, 1)] == [2, 0]


@pytest.mark.parametrize(
    ("rule", "pp", "batch", "message"),
    [
        ("pipedrem", 2, 1, r"unknown rule of weight versions 'pipedrem' \(did you mean 'pipedream"),
        ("pipedream", 1, 1, "pp=1: a pipeline has at least 2 ranks"),
        ("pipedream", 4, 2, "updates every 2 micro-batches on 4 stages; allowed: 1"),
        ("pipedream_2bw", 4, 2, "updates every 2 micro-batches on 4 stages; allowed: 3 and more"),
        ("pipedream_2bw", 2, 0, "updates every 0 micro-batches on 2 stages; allowed: 1 and more"),
    ],
)
def test_refusals(rule: str, pp: int, batch: int, message: str) -> None:
    with pytest.raises(ScheduleError, match=message):
        Versions(rule=rule, pp=pp, batch=batch)
