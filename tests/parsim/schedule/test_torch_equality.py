"""Our lists against the ones that torch's own classes produce, action for action."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parsim.errors import ScheduleError
from parsim.schedule import Schedule, build_schedule
from parsim.schedule.lowering import lower

pytest.importorskip("torch")
theirs = pytest.importorskip("torch.distributed.pipelining.schedules")

SINGLE = [(p, m) for p in (1, 2, 3, 4, 8) for m in (1, 2, 3, 4, 7, 8, 16, 33)]
CHUNKED = [
    (p, m, v) for p in (1, 2, 3, 4, 8) for m in (1, 2, 3, 4, 6, 8, 10, 16, 32) for v in (2, 3, 4)
]


def stage(pp: int, v: int) -> Any:
    made = mock.create_autospec(theirs._PipelineStageBase, instance=True)
    made.group_rank, made.group_size, made.num_stages, made.submod = 0, pp, pp * v, None
    return made


def runtime(schedule: Schedule) -> Any:
    stages = [stage(schedule.pp, 1)]
    stages[0].num_stages = schedule.num_stages
    return theirs._PipelineScheduleRuntime(stages, schedule.num_microbatches)


def as_text(order: Any) -> list[list[str]]:
    return [[str(a) for a in order[rank] if a is not None] for rank in sorted(order)]


def compute_text(order: Any) -> list[list[str]]:
    return [[a for a in row if "REDUCE_GRAD" not in a] for row in as_text(order)]


def our_text(schedule: Schedule) -> list[list[str]]:
    return [[str(a) for a in row] for row in schedule.ranks]


def as_theirs(schedule: Schedule) -> dict[int, list[Any]]:
    return {
        rank: [theirs._Action.from_str(str(a)) for a in row]
        for rank, row in enumerate(schedule.ranks)
    }


def their_sends(schedule: Schedule) -> Any:
    rank_of = schedule.stage_rank
    return theirs._add_send_recv(
        as_theirs(schedule), stage_to_rank=rank_of.__getitem__, num_stages=schedule.num_stages
    )


def what_runs(made: Any, rank: int) -> list[str]:
    """The chunks that a single-stage schedule really computes, recorded from a mocked stage."""
    ran, made._stage.stage_index = [], rank
    made._stage.forward_one_chunk.side_effect = lambda mb, *_, **__: ran.append(f"{rank}F{mb}")
    made._stage.backward_one_chunk.side_effect = lambda mb, **_: ran.append(f"{rank}B{mb}")
    for ops in ("fwd_recv", "fwd_send", "bwd_recv", "bwd_send"):
        getattr(made._stage, f"get_{ops}_ops").return_value = []
    with mock.patch.object(made, "_initialize_stage"):
        made._step_microbatches()
    return ran


@pytest.mark.parametrize(("pp", "m"), SINGLE)
def test_gpipe(pp: int, m: int) -> None:
    made = theirs.ScheduleGPipe(stage(pp, 1), m)
    ours = our_text(build_schedule("gpipe", pp=pp, num_microbatches=m))
    assert ours == compute_text(made.pipeline_order)
    assert ours == [what_runs(made, rank) for rank in range(pp)]


@pytest.mark.parametrize(("pp", "m"), SINGLE)
def test_1f1b_is_what_torch_runs(pp: int, m: int) -> None:
    made = theirs.Schedule1F1B(stage(pp, 1), max(pp, m))
    made._n_microbatches = m  # its loop, unlike its constructor, takes m < pp
    ours = our_text(build_schedule("1f1b", pp=pp, num_microbatches=m))
    assert ours == [what_runs(made, rank) for rank in range(pp)]


@pytest.mark.parametrize(("pp", "m"), [(p, m) for p, m in SINGLE if m >= p])
def test_1f1b_is_what_torch_lists(pp: int, m: int) -> None:
    order = theirs.Schedule1F1B(stage(pp, 1), m).pipeline_order
    # torch 2.13 numbers the forwards of its last rank 1..m in this list, though it runs 0..m-1
    # (test above). Count them from 0 on; nothing else is touched.
    first = next(a.microbatch_index for a in order[pp - 1] if a and a.computation_type == theirs.F)
    order[pp - 1] = [
        a._replace(microbatch_index=a.microbatch_index - first)
        if a and a.computation_type == theirs.F
        else a
        for a in order[pp - 1]
    ]
    ours = build_schedule("1f1b", pp=pp, num_microbatches=m)
    assert our_text(ours) == compute_text(order)
    assert our_text(lower(ours, reduce_grad=True)) == as_text(
        theirs._add_send_recv(order, stage_to_rank=lambda s: s, num_stages=pp)
    )


@pytest.mark.parametrize(("pp", "m", "v"), CHUNKED)
def test_interleaved(pp: int, m: int, v: int) -> None:
    stages = [stage(pp, v) for _ in range(v)]
    try:
        made = theirs.ScheduleInterleaved1F1B(stages, m)
    except ValueError:
        with pytest.raises(ScheduleError, match="not a multiple of its"):
            build_schedule("interleaved_1f1b", pp=pp, num_microbatches=m, v=v)
        return
    ours = build_schedule("interleaved_1f1b", pp=pp, num_microbatches=m, v=v)
    assert our_text(ours) == as_text(made.pipeline_order)
    assert dict(enumerate(ours.stage_rank)) == made.stage_index_to_group_rank
    lowered = lower(ours, unshard=True, reduce_grad=True)
    assert our_text(lowered) == as_text(made.pipeline_order_with_comms)


@pytest.mark.parametrize("pp", [2, 3, 4, 5, 8])
@pytest.mark.parametrize("m", [1, 2, 5, 8, 16, 20])
def test_zb_v(pp: int, m: int) -> None:
    made = theirs.ScheduleZBVZeroBubble([stage(pp, 2) for _ in range(2)], m)
    ours = build_schedule("zb_v", pp=pp, num_microbatches=m, v=2)
    assert our_text(ours) == as_text(made.pipeline_order)
    assert dict(enumerate(ours.stage_rank)) == made.stage_index_to_group_rank


@pytest.mark.parametrize(("pp", "m", "v"), [(2, 3, 2), (4, 1, 2), (4, 8, 3), (3, 5, 4)])
def test_looped_bfs(pp: int, m: int, v: int) -> None:
    made = theirs.ScheduleLoopedBFS([stage(pp, v) for _ in range(v)], m)
    ours = build_schedule("looped_bfs", pp=pp, num_microbatches=m, v=v)
    assert our_text(ours) == compute_text(made.pipeline_order)


@pytest.mark.parametrize("pp", [2, 3, 4, 5, 8])
def test_dualpipe_v(pp: int) -> None:
    for m in (2 * pp, 2 * pp + 1, 4 * pp):
        made = theirs.ScheduleDualPipeV([stage(pp, 2) for _ in range(2)], m)
        ours = build_schedule("dualpipe_v", pp=pp, num_microbatches=m, v=2)
        assert our_text(ours) == [_unpaired(row) for row in made.pipeline_order.values()]
        assert dict(enumerate(ours.stage_rank)) == made.stage_index_to_group_rank


def _unpaired(row: Any) -> list[str]:
    """Torch's list, in which a forward and a backward may be one action of two."""
    return [str(a) for pair in row for a in (pair.sub_actions or (pair,))]


def test_interleaved_refuses_what_torch_refuses() -> None:
    with pytest.raises(ValueError, match="multiple of the number of rounds"):
        theirs.ScheduleInterleaved1F1B([stage(4, 2), stage(4, 2)], 11)
    with pytest.raises(ScheduleError, match="num_microbatches=11 is not a multiple of its 2 round"):
        build_schedule("interleaved_1f1b", pp=4, num_microbatches=11, v=2)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_lowering_of_random_schedules(
    random_schedule: Callable[[int], Schedule], seed: int
) -> None:
    schedule = random_schedule(seed)
    assert our_text(lower(schedule)) == as_text(their_sends(schedule))
    made = runtime(schedule)
    made._prepare_schedule_with_comms(as_theirs(schedule))
    everything = lower(schedule, unshard=True, reduce_grad=True)
    assert our_text(everything) == as_text(made.pipeline_order_with_comms)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_single_passes_of_random_schedules(
    random_schedule: Callable[[int], Schedule], seed: int
) -> None:
    schedule = random_schedule(seed)
    m = schedule.num_microbatches
    ours = lower(schedule, unshard=True)
    rows = {rank: theirs._add_unshard_reshard(row) for rank, row in as_theirs(schedule).items()}
    assert _without_messages(ours) == as_text(rows)
    ours = lower(schedule, reduce_grad=True)
    rows = {rank: theirs._add_reduce_grad(row, m) for rank, row in as_theirs(schedule).items()}
    assert _without_messages(ours) == as_text(rows)


def _without_messages(schedule: Schedule) -> list[list[str]]:
    return [[a for a in row if "SEND" not in a and "RECV" not in a] for row in our_text(schedule)]


@pytest.mark.parametrize("form", ["compute_only", "compute_comms"])
def test_csv_loads_in_torch_and_is_what_torch_writes(
    tmp_path: Path, random_schedule: Callable[[int], Schedule], form: str
) -> None:
    schedule = random_schedule(7)
    everything = lower(schedule, unshard=True, reduce_grad=True)
    ours, made = tmp_path / "ours.csv", runtime(schedule)
    source = schedule if form == "compute_only" else everything
    ours.write_bytes(source.to_csv().encode())
    made._load_csv(str(ours), format=form)
    assert as_text(made.pipeline_order_with_comms) == our_text(everything)
    made._dump_csv(str(tmp_path / "theirs.csv"), format=form)
    assert (tmp_path / "theirs.csv").read_bytes() == ours.read_bytes()


def test_csv_that_torch_writes_with_idle_steps(tmp_path: Path) -> None:
    made = theirs.ScheduleInterleaved1F1B([stage(4, 2), stage(4, 2)], 8)
    made._dump_csv(str(tmp_path / "theirs.csv"), format="compute_only")
    text = (tmp_path / "theirs.csv").read_text()
    assert ",," in text
    ours = build_schedule("interleaved_1f1b", pp=4, num_microbatches=8, v=2)
    assert Schedule.from_csv(text, name=ours.name) == ours


def test_torch_finds_our_lowered_schedules_free_of_deadlock() -> None:
    schedule = lower(build_schedule("interleaved_1f1b", pp=4, num_microbatches=8, v=2))
    steps = theirs._simulate_comms_compute(
        as_theirs(schedule), schedule.stage_rank.__getitem__, schedule.num_stages
    )
    assert sum(a is not None for row in steps.values() for a in row) == sum(
        map(len, schedule.ranks)
    )
