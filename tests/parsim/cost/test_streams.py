"""Stream programs: as an event-by-event simulation plays them, and within their bounds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parsim.cost.streams import COMPUTE, StreamTask, StreamTimes, pipelined, run
from tests.parsim.cost.played import played

COLUMNS = 3
STREAMS = (COMPUTE, "dp", "tp")
SPEEDS = st.lists(st.sampled_from([0.0, 0.25, 0.6, 0.9, 1.0]), min_size=COLUMNS, max_size=COLUMNS)


@st.composite
def programs(draw: st.DrawFn) -> list[StreamTask]:
    """Tasks of up to three streams; each may wait for any earlier ones."""
    program: list[StreamTask] = []
    for number in range(draw(st.integers(1, 12))):
        seconds = draw(st.lists(st.integers(0, 16), min_size=COLUMNS, max_size=COLUMNS))
        program.append(
            StreamTask(
                stream=draw(st.sampled_from(STREAMS)),
                seconds=np.array(seconds) / 8.0,
                after=tuple(sorted(draw(st.sets(st.integers(0, number - 1), max_size=3))))
                if number
                else (),
            )
        )
    return program


def total(program: list[StreamTask], stream: str) -> np.ndarray:
    return np.asarray(sum((t.seconds for t in program if t.stream == stream), np.zeros(COLUMNS)))


@given(programs(), SPEEDS)
def test_it_is_what_an_event_simulation_finds(
    program: list[StreamTask], speeds: list[float]
) -> None:
    ran = run(program, np.array(speeds))
    for column, speed in enumerate(speeds):
        start, end = played(program, speed, column)
        assert [times[column] for times in ran.start] == pytest.approx(start, abs=1e-9)
        assert [times[column] for times in ran.end] == pytest.approx(end, abs=1e-9)
        assert ran.duration[column] == pytest.approx(max(end), abs=1e-9)


@given(programs(), SPEEDS)
def test_bounds_and_parts(program: list[StreamTask], speeds: list[float]) -> None:
    ran = run(program, np.array(speeds))
    for stream in STREAMS:
        assert (ran.duration >= total(program, stream) - 1e-9).all()
    assert (ran.duration <= sum(total(program, s) for s in STREAMS) + 1e-9).all()
    parts = ran.compute + ran.late + sum(ran.exposed.values(), np.zeros(COLUMNS))
    assert parts == pytest.approx(ran.duration, abs=1e-9)
    assert all((waited >= 0.0).all() for waited in ran.exposed.values())
    assert (ran.late >= -1e-9).all()


@given(programs(), SPEEDS, st.data())
def test_without_slowdown_longer_tasks_never_end_sooner(
    program: list[StreamTask], speeds: list[float], data: st.DataObject
) -> None:
    """With slowdown they may: a collective that comes later may find no kernel to slow."""
    chosen = data.draw(st.integers(0, len(program) - 1))
    longer = list(program)
    longer[chosen] = replace(program[chosen], seconds=program[chosen].seconds + 0.5)
    full = np.ones(COLUMNS)
    assert (run(longer, full).duration >= run(program, full).duration - 1e-9).all()
    # what is always true: no speed makes a program faster than full speed does
    assert (run(program, np.array(speeds)).duration >= run(program, full).duration - 1e-9).all()


def pipeline(compute: float, wire: float, pieces: int, *, before: bool) -> list[StreamTask]:
    """K kernels with a collective before each, one ahead, or behind each."""
    program: list[StreamTask] = []
    kernels: list[int] = []
    for _ in range(pieces):
        needed: tuple[int, ...] = ()
        if before:
            program.append(task("dp", wire / pieces, *kernels[-2:-1]))
            needed = (len(program) - 1,)
        program.append(task(COMPUTE, compute / pieces, *needed))
        kernels.append(len(program) - 1)
        if not before:
            program.append(task("dp", wire / pieces, kernels[-1]))
    return program


def task(stream: str, seconds: float, *after: int) -> StreamTask:
    return StreamTask(stream=stream, seconds=np.array([seconds]), after=after)


@given(
    st.floats(0.0, 10.0),
    st.floats(0.0, 10.0),
    st.integers(1, 9),
    st.floats(0.05, 1.0),
    st.booleans(),
)
def test_equal_pieces_in_closed_form(
    compute: float, wire: float, pieces: int, speed: float, before: bool
) -> None:
    columns = (np.array([float(x)]) for x in (compute, wire, pieces, speed))
    walked = run(pipeline(compute, wire, pieces, before=before), np.array([speed]))
    assert pipelined(*columns) == pytest.approx(walked.duration, abs=1e-9)


@pytest.mark.parametrize(
    ("compute", "wire", "kept", "expected"),
    [
        (10.0, 4.0, 1.0, 11.0),  # hidden but for the first of four pieces
        (10.0, 4.0, 0.75, 11.75),  # and a quarter of the three that ran beside is late
        (2.0, 8.0, 1.0, 8.5),  # all wire but for one piece of compute
        (10.0, 4.0, 0.0, 14.0),  # one core does both
    ],
)
def test_overlap_by_hand(compute: float, wire: float, kept: float, expected: float) -> None:
    columns = (np.array([x]) for x in (compute, wire, 4.0, kept))
    assert pipelined(*columns)[0] == expected


def test_waits_are_charged_to_the_stream_that_is_late() -> None:
    #  compute |.....|==0==|.........|==1==|....|
    #  dp      |--g0-|
    #  tp            |------ x ------|   |- y -|
    ran: StreamTimes = run(
        [
            task("dp", 2.0),
            task(COMPUTE, 1.0, 0),
            task("tp", 4.0, 0),
            task(COMPUTE, 1.0, 2),
            task("tp", 3.0, 2),
        ],
        np.array([0.5]),
    )
    assert [times[0] for times in ran.start] == [0.0, 2.0, 2.0, 6.0, 6.0]
    assert [times[0] for times in ran.end] == [2.0, 4.0, 6.0, 8.0, 9.0]
    assert {name: times[0] for name, times in ran.exposed.items()} == {"dp": 2.0, "tp": 2.0 + 1.0}
    assert (ran.compute[0], ran.late[0]) == (2.0, 2.0)
