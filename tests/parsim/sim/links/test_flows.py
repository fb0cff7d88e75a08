"""Flows over time: solved by hand, by both engines alike, and without any chunk."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parsim.errors import InputError
from parsim.sim.links.fair_share import Flows
from parsim.sim.links.flows import Traffic, carry, carry_by_numpy, carry_compiled


def test_two_flows_share_while_both_are_there() -> None:
    """f0 alone 1 s (10), both 2 s (5 each), f0 alone again: 40 = 10 + 10 + 20 at 10."""
    flows = Flows.of([[0], [0]], [10.0])
    result = carry(Traffic.of(flows, np.array([40.0, 10.0]), delay=np.array([0.0, 1.0])))
    assert result.end.tolist() == [5.0, 3.0]
    assert result.solves == 3
    assert result.saturated.tolist() == result.busy.tolist() == [5.0]
    assert result.load.tolist() == [50.0]


def test_latency_is_spent_once_before_the_first_byte() -> None:
    flows = Flows.of([[0, 1, 2]], [10.0, 20.0, 10.0])
    result = carry(Traffic.of(flows, np.array([30.0]), latency=np.array([0.5])))
    assert result.end.tolist() == [3.5]
    assert result.busy.tolist() == [3.0, 3.0, 3.0]
    assert result.saturated.tolist() == [3.0, 0.0, 3.0]


def test_a_flow_starts_when_the_one_it_waits_for_has_ended() -> None:
    flows = Flows.of([[0], [0], [0]], [10.0])
    traffic = Traffic.of(
        flows,
        np.array([10.0, 20.0, 5.0]),
        delay=np.array([0.0, 2.0, 0.0]),
        after=np.array([-1, 0, 1]),
    )
    assert carry(traffic).end.tolist() == [1.0, 5.0, 5.5]
    assert carry(traffic).start.tolist() == [0.0, 3.0, 5.0]


def test_flows_that_end_together_end_in_one_event() -> None:
    flows = Flows.of([[0]] * 7, [1.0])
    assert carry(Traffic.of(flows, np.full(7, 0.1))).solves == 1


@pytest.mark.parametrize("pieces", [2, 7])
def test_a_flow_in_pieces_ends_when_the_whole_does(pieces: int) -> None:
    """Chunks, one behind the other, of both flows: the same ends as without."""
    paths = [[0, 1], [1, 2]]
    whole = carry(Traffic.of(Flows.of(paths, [3.0, 4.0, 9.0]), np.array([7.0, 5.0])))
    parts = [path for path in paths for _ in range(pieces)]
    after = np.array([i - 1 if i % pieces else -1 for i in range(2 * pieces)])
    size = np.repeat([7.0, 5.0], pieces) / pieces
    cut = carry(Traffic.of(Flows.of(parts, [3.0, 4.0, 9.0]), size, after=after))
    assert cut.end[pieces - 1 :: pieces] == pytest.approx(whole.end, rel=1e-12)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"size": np.array([0.0, 1.0])}, "size of flow 0 is 0.0"),
        ({"size": np.array([1.0])}, "1 values of size for 2 flows"),
        ({"size": np.ones(2), "delay": np.array([0.0, -1.0])}, "delay of flow 1 is -1.0"),
        ({"size": np.ones(2), "latency": np.array([np.nan, 0])}, "latency of flow 0 is nan"),
        ({"size": np.ones(2), "after": np.array([1, -1])}, "waits for one that does not come"),
    ],
)
def test_traffic_that_cannot_run_is_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Traffic.of(Flows.of([[0], [0]], [1.0]), **wrong)


@st.composite
def traffics(draw: st.DrawFn) -> Traffic:
    """Up to 25 flows on 6 links that start at different times or one after another."""
    path = st.lists(st.integers(0, 5), min_size=1, max_size=3, unique=True)
    paths = draw(st.lists(path, min_size=1, max_size=25))
    count = len(paths)
    several = st.lists(st.integers(0, 12), min_size=count, max_size=count)
    flows = Flows.of(
        paths,
        np.array([draw(st.integers(1, 9)) for _ in range(6)], dtype=float),
        multiplicity=1.0 + np.array(draw(several)),
        limit=[draw(st.sampled_from([np.inf, 0.3, 2.0])) for _ in paths],
    )
    return Traffic.of(
        flows,
        1.0 + np.array(draw(several)),
        delay=np.array(draw(several), dtype=float),
        latency=np.array(draw(several)) / 8.0,
        after=np.array([draw(st.integers(-1, i - 1)) for i in range(count)]),
    )


@given(traffics())
@settings(max_examples=60, deadline=None)
def test_both_engines_give_the_same_bits(traffic: Traffic) -> None:
    loops = pytest.importorskip("parsim.sim.links.numba_flows", reason="needs numba")
    first, two = carry_by_numpy(traffic), carry_compiled(traffic, loops)
    for name in ("start", "end", "busy", "saturated", "load"):
        assert (getattr(first, name) == getattr(two, name)).all()
    assert first.solves == two.solves


@given(traffics())
@settings(max_examples=60, deadline=None)
def test_all_bytes_arrive_and_no_sooner_than_alone(traffic: Traffic) -> None:
    result, flows = carry_by_numpy(traffic), traffic.flows
    carried = flows.weight * traffic.size[flows.owner]
    sent = np.bincount(flows.links, weights=carried, minlength=len(flows.capacity))
    assert result.load == pytest.approx(sent, rel=1e-9)
    assert (result.saturated <= result.busy).all()
    narrowest = np.minimum.reduceat(flows.capacity[flows.links] / flows.weight, flows.bounds[:-1])
    alone = traffic.latency + traffic.size / np.minimum(narrowest, flows.limit)
    assert (result.end - result.start >= alone * (1 - 1e-9)).all()
