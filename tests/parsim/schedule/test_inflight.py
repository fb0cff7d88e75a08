from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parsim.schedule import Kind, Schedule, build_schedule
from parsim.schedule.inflight import Counts, inflight_counts
from parsim.schedule.lowering import lower


def every_state(schedule: Schedule, rank: int) -> Iterator[Counts]:
    """All vectors of counts that a rank goes through, one after each action."""
    stages = schedule.stages_on(rank)
    counts: dict[int, int] = {}
    for action in schedule.ranks[rank]:
        change = {Kind.F: 1, Kind.B: -1, Kind.W: -1}.get(action.kind, 0)
        counts[action.stage] = counts.get(action.stage, 0) + change
        yield tuple(counts.get(stage, 0) for stage in stages)


def dominated(vector: Counts, others: Iterable[Counts]) -> bool:
    return any(o != vector and all(a <= b for a, b in zip(vector, o, strict=True)) for o in others)


@given(seed=st.integers(0, 10**6))
def test_equals_the_maximal_states_by_brute_force(
    random_schedule: Callable[[int], Schedule], seed: int
) -> None:
    schedule = random_schedule(seed)
    for rank, vectors in enumerate(inflight_counts(schedule)):
        states = set(every_state(schedule, rank))
        assert set(vectors) == {s for s in states if not dominated(s, states)}
        assert list(vectors) == sorted(set(vectors), reverse=True)


@given(seed=st.integers(0, 10**6))
def test_lowering_changes_nothing(random_schedule: Callable[[int], Schedule], seed: int) -> None:
    schedule = random_schedule(seed)
    everything = lower(schedule, unshard=True, reduce_grad=True)
    assert inflight_counts(everything) == inflight_counts(schedule)


@pytest.mark.parametrize(("p", "m"), [(1, 1), (4, 8), (8, 32), (8, 3)])
def test_single_chunk_closed_forms(p: int, m: int) -> None:
    def built(name: str) -> tuple[tuple[Counts, ...], ...]:
        return inflight_counts(build_schedule(name, pp=p, num_microbatches=m))

    assert built("naive") == (((1,),),) * p
    assert built("gpipe") == (((m,),),) * p
    assert built("1f1b") == tuple(((min(p - s, m),),) for s in range(p))


@pytest.mark.parametrize(
    ("p", "m", "v", "chunks"), [(4, 8, 2, 11), (8, 32, 2, 23), (8, 32, 4, 39), (16, 128, 4, 79)]
)
def test_interleaved_closed_form(p: int, m: int, v: int, chunks: int) -> None:
    assert chunks == p * v + p - 1
    vectors = inflight_counts(build_schedule("interleaved_1f1b", pp=p, num_microbatches=m, v=v))
    assert max(map(sum, vectors[0])) == chunks
    assert all(len(vector) == v for rank in vectors for vector in rank)


def test_split_backward_holds_until_w() -> None:
    fused = Schedule.from_csv("0F0,0B0,0F1,0B1\n")
    split = Schedule.from_csv("0F0,0I0,0F1,0W0,0I1,0W1\n")
    assert inflight_counts(fused) == (((1,),),)
    assert inflight_counts(split) == (((2,),),)


def test_chunks_that_peak_at_different_times() -> None:
    # Three on chunk 0 while the first is on chunk 1; later two on both. Neither exceeds the other.
    schedule = Schedule.from_csv("0F0,0F1,0F2,1F0,1B0,0B0,1F1,1F2,1B1,1B2,0B1,0B2\n")
    assert inflight_counts(schedule) == (((3, 1), (2, 2)),)
