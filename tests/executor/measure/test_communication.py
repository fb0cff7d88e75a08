"""Collectives get their names, stages and what was waited for, from the spans around them."""

from __future__ import annotations

from executor.measure.communication import Expected, with_communication
from executor.measure.exposed import Transfer
from parsim.timelines.timeline import Span

NOTHING = Expected()


def named(
    spans: list[Span], transfers: list[Transfer], expected: Expected = NOTHING
) -> list[tuple[str, float]]:
    """Names of the communication spans, and their exposed seconds, in time order."""
    result = with_communication(spans, transfers, expected)
    lanes = sorted((s for s in result if s.stream != "compute"), key=lambda span: span.start)
    return [(f"{span.stream}: {span.name}", span.exposed) for span in lanes]


def action(kind: str, start: float, end: float, stage: int = 0, microbatch: int = 0) -> Span:
    return Span(0, "compute", kind, start, end, stage, microbatch)


UPDATE = Span(0, "compute", "OPTIMIZER", 8.0, 9.0)


def test_an_exchange_belongs_to_the_action_around_it() -> None:
    spans = [action("F", 0.0, 2.0), action("B", 2.0, 5.0), UPDATE]
    transfers = [
        Transfer("tp", "all_reduce", 0.5, 1.0, ((0.5, 1.0),)),
        Transfer("tp", "all_reduce", 3.0, 3.5, ((3.25, 3.5),)),
    ]
    assert named(spans, transfers) == [("tp: 0EXCHANGE0", 0.5), ("tp: 0EXCHANGE0", 0.25)]
    result = with_communication(spans, transfers, NOTHING)
    assert [s.exposed for s in result if s.stream == "compute"] == [0.5, 0.25, 0.0]


def test_shards_are_gathered_reduced_and_updated() -> None:
    spans = [action("F", 0.0, 2.0), action("B", 2.0, 5.0), UPDATE]
    transfers = [
        Transfer("dp", "all_gather", 0.5, 1.0),
        Transfer("dp", "AllGather", 2.5, 3.0),
        Transfer("dp", "reduce_scatter", 4.0, 6.0, ((5.0, 6.0),)),
        Transfer("dp", "all_gather", 8.5, 9.0, ((8.5, 9.0),)),
    ]
    assert named(spans, transfers) == [
        ("dp: 0UNSHARD0", 0.0),
        ("dp: 0UNSHARD0", 0.0),
        ("dp: 0REDUCE_GRAD", 1.0),
        ("dp: GATHER_PARAM", 0.5),
    ]


def test_a_move_to_a_partner_has_the_name_of_what_moves() -> None:
    """Beside backward 1 micro-batch 4 leaves; the tied table's sum stays the last collective."""
    spans = [action("B", 0.0, 3.0, microbatch=1), UPDATE]
    transfers = [
        Transfer("tp", "all_reduce", 4.0, 5.0, ((4.0, 5.0),)),
        Transfer("offload", "OFFLOAD", 0.0, 2.5, ((2.0, 2.5),), 0, 4),
        Transfer("offload", "RELOAD", 5.0, 6.0, (), 0, 2),
    ]
    assert named(spans, transfers, Expected(tied=1)) == [
        ("offload: 0OFFLOAD4", 0.5),
        ("dp: REDUCE_TIED", 1.0),
        ("offload: 0RELOAD2", 0.0),
    ]
    assert with_communication(spans, transfers, NOTHING)[0].exposed == 0.5


def test_the_last_collective_before_the_update_sums_the_tied_table() -> None:
    spans = [action("B", 0.0, 2.0), UPDATE]
    transfers = [
        Transfer("tp", "all_reduce", 1.0, 2.5),
        Transfer("tp", "all_reduce", 3.0, 8.5, ((3.0, 4.0),)),  # its thread notices late
    ]
    expected = Expected(tied=1)
    assert named(spans, transfers, expected) == [("tp: 0EXCHANGE0", 0.0), ("dp: REDUCE_TIED", 1.0)]
    tied = with_communication(spans, transfers, expected)[-1]
    assert tied.end == UPDATE.start


def test_no_more_is_waited_for_than_it_takes() -> None:
    """A thread that notices late still runs while the norm of all gradients is waited for."""
    norm = Span(0, "compute", "GRAD_NORM", 3.0, 4.0)
    late = Transfer("dp", "all_reduce", 2.0, 3.5, ((2.5, 3.0), (3.25, 3.5)))
    result = with_communication([action("B", 0.0, 2.5), norm, UPDATE], [late], NOTHING)
    reduced = next(span for span in result if span.kind == "REDUCE_GRAD")
    assert (reduced.duration, reduced.exposed) == (1.0, 0.5)


def test_buckets_belong_to_the_stages_in_the_order_of_their_actions() -> None:
    """Two chunks: stage 2 sends two buckets, stage 0 one; the second runs when 0B is on."""
    spans = [
        Span(0, "dp", "REDUCE_GRAD", 1.0, 1.1, 2),
        action("B", 1.1, 3.0),
        Span(0, "dp", "REDUCE_GRAD", 3.0, 3.1, 0),
        UPDATE,
    ]
    transfers = [Transfer("dp", "all_reduce", start, start + 1) for start in (1.05, 1.5, 3.2)]
    expected = Expected(buckets={0: 1, 2: 2})
    assert named(spans, transfers, expected) == [
        ("dp: 2REDUCE_GRAD", 0.0),
        ("dp: 2REDUCE_GRAD", 0.0),
        ("dp: 0REDUCE_GRAD", 0.0),
    ]


def test_actions_give_way_to_the_collectives_that_they_started() -> None:
    spans = [
        Span(0, "dp", "UNSHARD", 0.0, 1.0, 1),
        action("F", 1.0, 2.0, 1),
        action("B", 2.0, 3.0, 1),
        Span(0, "dp", "REDUCE_GRAD", 3.0, 4.0, 1),
        Span(0, "dp", "RESHARD", 4.0, 4.1, 1),
    ]
    transfers = [
        Transfer("dp", "all_gather", 0.2, 0.8),
        Transfer("dp", "reduce_scatter", 3.2, 3.4),
        Transfer("dp", "reduce_scatter", 3.5, 3.7),
    ]
    assert named(spans, transfers) == [
        ("dp: 1UNSHARD", 0.0),
        ("dp: 1REDUCE_GRAD", 0.0),
        ("dp: 1REDUCE_GRAD", 0.0),
        ("dp: 1RESHARD", 0.0),
    ]


def test_without_collectives_nothing_changes() -> None:
    spans = [action("F", 0.0, 2.0), Span(0, "dp", "REDUCE_GRAD", 3.0, 3.1, 0)]
    assert with_communication(spans, [], NOTHING) == spans
