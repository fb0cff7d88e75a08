"""A strategy that parsim does not know, written as one function: all of it follows from that.

    worker 0   | pull | F  | B  | push |          | pull | F  | B  | push |  average |
    worker 1   | pull | F  | B  | push |          | pull | F  | B  | push |  average |
    server                          | update 0 | update 1 |    ...      | update | update |

Two workers push their gradients to a server, which adds each to the parameters as it comes, and
pull the parameters when both are in; every second step the workers average their statistics.
"""

from __future__ import annotations

import numpy as np
import pytest

from parsim.errors import ScheduleError
from parsim.sim.program import PricedProgram, by_events, by_recurrence, peak_bytes, program_timeline
from parsim.strategy import Meeting, StepProgram, Task, Waits

WORKERS, SERVER, STEPS = (0, 1), 2, 2


def server_and_workers() -> StepProgram:
    """The toy strategy: its one builder function."""
    tasks: list[Task] = []
    for step in range(STEPS):
        updated = tuple(f"update {worker} {step - 1}" for worker in WORKERS) if step else ()
        for worker in WORKERS:
            tasks += [
                Task(name=f"pull {worker} {step}", kind="PULL", ranks=(worker,), stream="recv",
                     price="transfer", after=updated),
                Task(name=f"F {worker} {step}", kind="F", ranks=(worker,), price="forward",
                     at=(worker,), waits=Waits.RANK, keeps="activations", microbatch=step),
                Task(name=f"B {worker} {step}", kind="B", ranks=(worker,), price="backward",
                     at=(worker,), frees=(f"F {worker} {step}",), microbatch=step),
                Task(name=f"push {worker} {step}", kind="PUSH", ranks=(worker,), stream="send",
                     price="transfer", waits=Waits.RANK),
            ]  # fmt: skip
        for worker in WORKERS:
            tasks.append(
                Task(name=f"update {worker} {step}", kind="OPTIMIZER", ranks=(SERVER,),
                     price="update", after=(f"push {worker} {step}",))
            )  # fmt: skip
    tasks.append(
        Task(name="average", kind="AVERAGE", ranks=WORKERS, stream="dp", price="average",
             waits=Waits.RANK, meets=Meeting.STAGES)
    )  # fmt: skip
    return StepProgram(
        tasks=tuple(tasks),
        ranks=3,
        roles=("worker 0", "worker 1", "server"),
        static="parameters",
        steps=STEPS,
    )


def priced(forward: tuple[float, float] = (1.0, 1.0)) -> PricedProgram:
    return PricedProgram(
        program=server_and_workers(),
        seconds={
            "transfer": np.array([0.25]),
            "forward": np.array(forward),
            "backward": 2.0 * np.array(forward),
            "update": np.array([0.5]),
            "average": np.array([0.125]),
        },
        sizes={"parameters": np.array([10.0, 10.0, 40.0]), "activations": np.array([7.0])},
    )


def test_the_closed_form() -> None:
    """A step is pull, F, B, push and both updates; the average meets the last step's updates."""
    step = 0.25 + 1.0 + 2.0 + 0.25 + 2 * 0.5
    assert float(by_recurrence(priced()).step_time[0]) == (2 * step) / 2


def test_a_slow_worker_holds_back_the_server_once_a_step() -> None:
    """The fast worker's update is done when the slow one pushes."""
    step = 0.25 + 3.0 + 6.0 + 0.25 + 0.5
    assert float(by_recurrence(priced((1.0, 3.0))).step_time[0]) == step


@pytest.mark.parametrize("forward", [(1.0, 1.0), (1.0, 3.0), (0.75, 0.5)])
def test_recurrence_and_events_give_every_task_the_same_times(
    forward: tuple[float, float],
) -> None:
    toy = priced(forward)
    recurrence, events = by_recurrence(toy), by_events(toy)
    assert events.step_time == float(recurrence.step_time[0])
    ends = {
        (task.name, rank): float(np.broadcast_to(times.end, (len(task.ranks), 1))[row, 0])
        for task in toy.program.tasks
        for times in [recurrence.times[task.name]]
        for row, rank in enumerate(task.ranks)
    }
    assert {(name, rank): end for (name, rank, _), end in events.ends.items()} == ends


def test_bytes_are_those_that_live_together() -> None:
    """A worker holds its parameters and one step's activations, the server its states."""
    assert peak_bytes(priced()).tolist() == [17.0, 17.0, 40.0]


def test_it_is_drawn_with_its_roles_and_what_each_holds() -> None:
    timeline = program_timeline(priced())
    assert timeline.meta["rank_labels"] == {"0": "worker 0", "1": "worker 1", "2": "server"}
    kinds = {kind: sum(span.kind == kind for span in timeline.spans) for kind in
             ("PULL", "F", "B", "PUSH", "OPTIMIZER", "AVERAGE")}  # fmt: skip
    assert kinds == {"PULL": 4, "F": 4, "B": 4, "PUSH": 4, "OPTIMIZER": 4, "AVERAGE": 2}
    assert max(span.end for span in timeline.spans) == STEPS * timeline.meta["step_time_s"]
    assert [max(curve.bytes) for curve in timeline.memory] == [17.0, 17.0, 40.0]
    assert [curve.bytes[-1] for curve in timeline.memory] == [10.0, 10.0, 40.0]


def test_the_picture_can_be_drawn() -> None:
    from parsim.report.picture.gantt import draw_timeline

    assert draw_timeline(program_timeline(priced())).axes


@pytest.mark.parametrize(
    ("tasks", "message"),
    [
        ((Task(name="a", kind="F", ranks=(0,)), Task(name="a", kind="B", ranks=(0,))), "two tasks"),
        ((Task(name="a", kind="F", ranks=(3,)),), "is on ranks"),
        ((Task(name="a", kind="F", ranks=(0,), after=("b",)),), "waits for 'b'"),
    ],
)
def test_a_program_that_cannot_be_walked_is_refused(tasks: tuple[Task, ...], message: str) -> None:
    with pytest.raises(ScheduleError, match=message):
        StepProgram(tasks=tasks, ranks=1)


def test_a_price_that_nobody_gave_is_named() -> None:
    program = StepProgram(tasks=(Task(name="a", kind="F", ranks=(0,), price="F"),), ranks=1)
    with pytest.raises(ScheduleError, match="seconds are given for"):
        PricedProgram(program=program, seconds={})
