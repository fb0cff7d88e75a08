"""BPipe: 1F1B's order, and no rank with more than (p + 2)/2 micro-batches, guests among them."""

from __future__ import annotations

import pytest

from parsim.schedule import Action, Kind, Schedule, build_schedule
from parsim.schedule.families.bpipe import most_kept
from parsim.schedule.inflight import inflight_counts

SIZES = [(pp, m) for pp in range(1, 13) for m in (1, 2, pp - 1, pp, pp + 1, 3 * pp) if m > 0]


def schedule(pp: int, m: int) -> Schedule:
    return build_schedule("bpipe", pp=pp, num_microbatches=m)


def walked(pp: int, m: int, rank: int) -> tuple[int, int, int, int]:
    """A rank's slots action by action: the most of its own, the most away, moves out and back.

    What leaves or comes back beside an action is on both ranks while it runs; what B 0 loads is
    there when it begins.
    """
    made, beside = schedule(pp, m), schedule(pp, m).moves
    here, away = set[int](), set[int]()
    most_here = most_away = out = back = 0
    for action in made.ranks[rank]:
        move = beside.get(action)
        evicted, loaded = (-1, -1) if move is None else move
        if action == Action(rank, Kind.B, 0) and loaded >= 0:
            assert loaded in away
            here, away, loaded, back = here | {loaded}, away - {loaded}, -1, back + 1
        if action.kind is Kind.F:
            here.add(action.microbatch)
        else:
            assert action.microbatch in here
        if evicted >= 0:
            assert evicted in here
            away, out = away | {evicted}, out + 1
        if loaded >= 0:
            assert loaded in away
            here, back = here | {loaded}, back + 1
        most_here, most_away = max(most_here, len(here)), max(most_away, len(away))
        here -= {evicted}
        away -= {loaded}
        if action.kind is Kind.B:
            here.remove(action.microbatch)
    assert not here | away
    return most_here, most_away, out, back


@pytest.mark.parametrize(("pp", "m"), SIZES)
def test_every_micro_batch_is_there_when_it_goes_back_and_slots_suffice(pp: int, m: int) -> None:
    made, limit = schedule(pp, m), most_kept(pp)
    assert made.ranks == build_schedule("1f1b", pp=pp, num_microbatches=m).ranks
    away_from = []
    for rank in range(pp):
        here, away, out, back = walked(pp, m, rank)
        assert here == min(m, pp - rank, limit) == inflight_counts(made)[rank][0][0]
        assert out == back
        away_from.append(away)
    assert made.guests == tuple(reversed(away_from))
    for counts, others in zip(inflight_counts(made), made.guests, strict=True):
        assert counts[0][0] + others <= limit


def test_the_papers_case_of_eight_ranks() -> None:
    """Ranks 0 to 3 hold 8, 7, 6, 5 under 1F1B; under BPipe nobody holds more than 5."""
    made = schedule(8, 32)
    pairs = zip(inflight_counts(made), made.guests, strict=True)
    kept = [counts[0][0] + others for counts, others in pairs]
    assert kept == [5, 5, 5, 5, 4, 5, 5, 5]
    assert made.guests == (0, 0, 0, 0, 0, 2, 3, 4)
    plain = build_schedule("1f1b", pp=8, num_microbatches=32)
    assert [counts[0][0] for counts in inflight_counts(plain)] == [8, 7, 6, 5, 4, 3, 2, 1]
    # m - L + 1: each micro-batch but the first L - 2 and the last goes out and comes back once
    assert [walked(8, 32, rank)[2] for rank in range(3)] == [28, 28, 28]


def test_short_pipelines_move_nothing() -> None:
    for pp in (1, 2, 3):
        assert schedule(pp, 12).moves == {}
    assert build_schedule("1f1b", pp=8, num_microbatches=8).moves == {}
