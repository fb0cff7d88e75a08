"""Max-min fair rates: solved by hand, by properties, and by both engines alike."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parsim.errors import InputError
from parsim.fitting.reports.rail_tree import CASES, capacities, paths
from parsim.sim.links.fair_share import (
    CertificateError,
    Flows,
    certify,
    fair_rates,
    fill,
    link_loads,
)


def test_three_flows_over_two_links() -> None:
    flows = Flows.of([[0], [0, 1], [1]], [10.0, 4.0])
    assert fair_rates(flows).tolist() == [8.0, 2.0, 2.0]


def test_a_chain_of_links_with_one_flow_over_all() -> None:
    """The textbook's parking lot: the long flow gets the least share of all its links."""
    flows = Flows.of([[0, 1, 2], [0], [1], [2], [2]], [1.0, 2.0, 1.2])
    assert fair_rates(flows) == pytest.approx([0.4, 0.6, 1.6, 0.4, 0.4], rel=1e-15)


def test_a_limit_leaves_the_rest_to_others() -> None:
    flows = Flows.of([[0], [0]], [10.0], limit=[1.0, np.inf])
    assert fair_rates(flows).tolist() == [1.0, 9.0]


def test_usage_counts_a_link_crossed_twice() -> None:
    flows = Flows.of([[0], [0]], [9.0], usage=[[2.0], [1.0]])
    assert fair_rates(flows).tolist() == [3.0, 3.0]


def test_a_flow_without_links_runs_at_its_limit() -> None:
    assert fair_rates(Flows.of([[], [0]], [2.0], limit=[7.0, np.inf])).tolist() == [7.0, 2.0]
    assert fair_rates(Flows.of([[]], [], limit=[7.0])).tolist() == [7.0]


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Flows.of([[0]], [0.0]), "capacity of link 0 is 0.0; it must be above 0"),
        (lambda: Flows.of([[0]], [-1.0]), "capacity of link 0 is -1.0"),
        (lambda: Flows.of([[0]], [np.nan]), "capacity of link 0 is nan"),
        (lambda: Flows.of([[1]], [1.0]), "crosses link 1; allowed: 0 to 0"),
        (lambda: Flows.of([[0, 0]], [1.0]), "crosses a link twice"),
        (lambda: Flows.of([[]], [1.0]), "crosses no link and has no limit"),
        (lambda: Flows.of([[0]], [1.0], multiplicity=[0.0]), "multiplicity of flow 0 is 0.0"),
        (lambda: Flows.of([[0]], [1.0], limit=[1.0, 2.0]), "2 values for 1 flows"),
        (lambda: Flows.of([[0]], [1.0], usage=[[1.0, 1.0]]), "2 usages for 1 links"),
    ],
)
def test_what_has_no_fair_rates_is_refused(build: Callable[[], Flows], message: str) -> None:
    with pytest.raises(InputError, match=message):
        build()


@pytest.mark.parametrize(
    ("rates", "message"),
    [([8.0, 2.0, 1.9], "no full link"), ([8.0, 2.1, 2.0], "link 0 carries"),
     ([7.0, 2.0, 2.0], "flow 0"), ([8.5, 1.5, 2.5], "flow 1")],
)  # fmt: skip
def test_the_certificate_fails_where_rates_are_not_fair(rates: list[float], message: str) -> None:
    flows = Flows.of([[0], [0, 1], [1]], [10.0, 4.0])
    with pytest.raises(CertificateError, match=message):
        certify(flows, np.array(rates))


@st.composite
def cases(draw: st.DrawFn) -> Flows:
    """Up to 30 flows of up to 4 of 10 links, with limits, usages and multiplicities."""
    links = draw(st.integers(1, 10))
    path = st.lists(st.integers(0, links - 1), min_size=1, max_size=4, unique=True)
    paths = draw(st.lists(path, min_size=1, max_size=30))
    size = st.floats(0.01, 100.0)
    return Flows.of(
        paths,
        draw(st.lists(st.floats(0.1, 1e12), min_size=links, max_size=links)),
        usage=[[draw(size) for _ in path] for path in paths],
        multiplicity=[float(draw(st.integers(1, 64))) for _ in paths],
        limit=[draw(st.one_of(st.just(np.inf), st.floats(1e-3, 1e12))) for _ in paths],
    )


@given(cases())
@settings(max_examples=150, deadline=None)
def test_rates_carry_their_certificate(flows: Flows) -> None:
    rates = fill(flows)
    certify(flows, rates)
    assert (rates > 0).all()
    assert (link_loads(flows, rates) <= flows.capacity * (1 + 1e-12)).all()


@given(cases(), st.integers(-20, 20))
@settings(max_examples=50, deadline=None)
def test_scaled_capacities_scale_the_rates(flows: Flows, power: int) -> None:
    by = 2.0**power
    scaled = Flows(bounds=flows.bounds, links=flows.links, usage=flows.usage,
                   multiplicity=flows.multiplicity, limit=flows.limit * by,
                   capacity=flows.capacity * by)  # fmt: skip
    assert (fill(scaled) == by * fill(flows)).all()


@given(cases(), st.randoms(use_true_random=False))
@settings(max_examples=50, deadline=None)
def test_the_order_of_flows_does_not_matter(flows: Flows, random: Random) -> None:
    order = list(range(len(flows.limit)))
    random.shuffle(order)
    shuffled = fill(flows.take(np.array(order)))
    assert shuffled == pytest.approx(fill(flows)[order], rel=1e-9)


@given(cases(), st.integers(2, 9))
@settings(max_examples=50, deadline=None)
def test_identical_flows_are_one_with_a_multiplicity(flows: Flows, times: int) -> None:
    """The first flow as `times` flows of 1/times the multiplicity gives the same rates."""
    whole = fill(flows)
    chosen = np.array([0] * times + list(range(1, len(flows.limit))))
    split = flows.take(chosen)
    split.multiplicity[:times] /= times
    assert fill(split) == pytest.approx(whole[chosen], rel=1e-9)


@given(cases())
@settings(max_examples=100, deadline=None)
def test_both_engines_give_the_same_bits(flows: Flows) -> None:
    compiled = pytest.importorskip("parsim.sim.links.numba_fair_share", reason="needs numba")
    waiting = np.flatnonzero(np.diff(flows.bounds) > 0)
    rates = flows.limit.copy()
    columns = (flows.bounds, flows.links, flows.weight, flows.limit, flows.capacity)
    compiled.fill_waiting(waiting, len(waiting), *columns, rates)
    assert (rates == fill(flows)).all()


@pytest.mark.parametrize("count", [64, 256, 1024])
def test_rates_are_those_of_simgrid(count: int) -> None:
    """Static flows over a rail-optimised fat tree; made by tests/tools/simgrid_rates.py."""
    stored = json.loads((Path(__file__).parent / "simgrid_rates.json").read_text("utf-8"))
    expected = stored["rates_bytes_per_s"][str(count)]
    assert len(set(expected)) >= 7
    result = fair_rates(Flows.of(paths(count, CASES[count]), capacities()))
    assert result == pytest.approx(expected, rel=1e-9)
