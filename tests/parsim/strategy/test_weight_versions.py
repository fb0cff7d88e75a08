"""Pipelines without flush as programs: steady rate, recurrence = events, bytes by hand."""

from __future__ import annotations

import numpy as np
import pytest

from parsim.schedule.versions import Versions
from parsim.sim.program import by_events, by_recurrence, peak_bytes
from parsim.sim.schedules.asynchronous import asynchronous_row
from parsim.sim.schedules.units import schedule_table
from parsim.sim.stages.prices import StagePrices, steady_state
from parsim.strategy.weight_versions import without_flush

RULES = [("pipedream", 1), ("pipedream_vertical_sync", 1), ("pipedream_2bw", 4)]


def prices(message: float = 0.0, forward: tuple[float, ...] = (1.0, 1.0, 1.0, 1.0)) -> StagePrices:
    ones = np.ones(len(forward))
    return StagePrices(
        forward=np.array(forward),
        backward=2.0 * np.array(forward),
        update=0.25 * ones,
        message=message,
        weights=100.0 * ones,
        activations=ones,
        static=1000.0 * ones,
    )


@pytest.mark.parametrize(("rule", "batch"), RULES)
def test_the_steady_state_is_the_slowest_stage(rule: str, batch: int) -> None:
    """Max over stages of F + B + update / batch."""
    versions = Versions(rule=rule, pp=4, batch=batch)
    assert steady_state(versions, prices()) == pytest.approx(3.0 + 0.25 / batch, abs=1e-12)
    uneven = prices(forward=(1.0, 2.0, 0.5, 1.0))
    assert steady_state(versions, uneven) == pytest.approx(6.0 + 0.25 / batch, abs=1e-12)


@pytest.mark.parametrize(("rule", "batch"), RULES)
@pytest.mark.parametrize("message", [0.0, 0.125])
def test_recurrence_and_events_give_every_task_the_same_times(
    rule: str, batch: int, message: float
) -> None:
    program = without_flush(Versions(rule=rule, pp=4, batch=batch), 14)
    priced = prices(message, (1.0, 1.5, 0.5, 1.25)).on(program)
    recurrence, events = by_recurrence(priced), by_events(priced)
    assert events.step_time == float(recurrence.step_time[0])
    ends = {task.name: float(recurrence.times[task.name].end[0, 0]) for task in program.tasks}
    assert {name: end for (name, _, _), end in events.ends.items()} == ends


@pytest.mark.parametrize(("rule", "batch"), RULES)
def test_bytes_are_the_versions_and_micro_batches_that_live_together(rule: str, batch: int) -> None:
    versions = Versions(rule=rule, pp=4, batch=batch)
    result = peak_bytes(prices().on(without_flush(versions, 24)))
    by_hand = [1000 + 100 * (versions.kept(s) - 1) + (4 - s) for s in range(4)]
    assert result.tolist() == by_hand


def test_fill_and_drain() -> None:
    row = asynchronous_row(Versions(rule="pipedream", pp=4), prices(), 12)
    assert row.fill == 3.0  # three forwards
    assert row.drain == 3 * 2.0 + 0.25  # three backwards and the last update
    assert row.versions == (4, 3, 2, 1)
    assert row.delays == (3, 2, 1, 0)


def test_the_picture_numbers_boxes_by_version() -> None:
    row = asynchronous_row(Versions(rule="pipedream", pp=4), prices(), 8)
    last = [span.microbatch for span in row.timeline.spans if span.rank == 3 and span.kind == "F"]
    first = [span.microbatch for span in row.timeline.spans if span.rank == 0 and span.kind == "F"]
    assert last == list(range(8))  # the last stage is never late
    assert first == [0, 0, 0, 0, 1, 2, 3, 4]


def test_rows_of_the_table() -> None:
    rows = schedule_table(4, 8).asynchronous
    assert [row.name for row in rows] == [rule for rule, _ in RULES]
    assert all(row.steady == pytest.approx(3.0) for row in rows)
    assert [row.peak for row in rows] == [(4, 3, 2, 1), (4, 4, 4, 4), (2, 2, 2, 2)]
