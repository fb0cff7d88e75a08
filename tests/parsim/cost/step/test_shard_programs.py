"""FSDP's passes: by hand, and a long run of equal layers as the whole program says."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parsim.cost.step.shard_programs import Unit, backward_pass, forward_pass

ALL = 10**6
FULL = np.ones(1)


def column(seconds: float) -> np.ndarray:
    return np.array([seconds])


def unit(count: int, compute: float, gather: float, scatter: float = 0.0) -> Unit:
    return Unit(
        count=count, compute=column(compute), gather=column(gather), scatter=column(scatter)
    )


UNITS = st.builds(unit, st.integers(1, 9), *(st.integers(0, 9).map(float) for _ in range(3)))
SECONDS = st.integers(0, 9).map(lambda x: column(float(x)))


@given(
    st.lists(UNITS, max_size=3),
    SECONDS,
    SECONDS,
    SECONDS,
    SECONDS,
    st.sampled_from([0.3, 0.75, 1.0]).map(column),
)
def test_repeated_layers_are_as_the_unrolled_program(
    units: list[Unit],
    first: np.ndarray,
    last: np.ndarray,
    gather: np.ndarray,
    scatter: np.ndarray,
    speed: np.ndarray,
) -> None:
    ahead = (forward_pass(first, units, last, gather, speed, k)[0] for k in (3, ALL))
    behind = (backward_pass(last, units, first, (gather, scatter), speed, k)[0] for k in (3, ALL))
    for short, whole in (ahead, behind):
        assert short == pytest.approx(whole, rel=1e-12)


def test_a_forward_shows_the_root_and_the_first_layer() -> None:
    # dp      |root 2| g1 1|g2|  ...
    # compute        |e|   | 4 | 4 | 4 | 4 | head 3|
    units = [unit(4, 4.0, 1.5)]
    seconds = forward_pass(column(1.0), units, column(3.0), column(2.0), FULL)
    assert seconds[0] == 2.0 + 1.5 + 4 * 4.0 + 3.0


def test_gathers_longer_than_layers_set_the_pace() -> None:
    units = [unit(5, 1.0, 4.0)]
    seconds = forward_pass(column(0.0), units, column(0.0), column(0.0), FULL)
    assert seconds[0] == 5 * 4.0 + 1.0


def test_a_gather_is_one_layer_ahead_and_no_more() -> None:
    """The gather of the last layer would hide if it could start under the first."""
    units = [unit(1, 9.0, 0.0), unit(1, 1.0, 0.0), unit(1, 1.0, 5.0)]
    seconds = forward_pass(column(0.0), units, column(0.0), column(0.0), FULL)
    assert seconds[0] == 9.0 + 5.0 + 1.0


def test_a_backward_shows_its_ends() -> None:
    # the gather of the last layer hides under the head, its reduce-scatter and all others under
    # layers; the first layer's reduce-scatter and the root's have only the embedding beside them
    units = [unit(4, 4.0, 1.0, 2.0)]
    seconds = backward_pass(column(3.0), units, column(1.0), (column(2.0), column(5.0)), FULL)
    assert seconds[0] == 2.0 + 3.0 + 4 * 4.0 + 2.0 + 5.0


def test_gathers_and_reduce_scatters_share_the_links() -> None:
    units = [unit(10, 4.0, 3.0, 3.0)]
    seconds = backward_pass(column(0.0), units, column(0.0), (column(0.0), column(0.0)), FULL)
    # every layer but the first and the last waits for 3 + 3 of its neighbours
    assert seconds[0] == 3.0 + 4.0 + 8 * 6.0 + 4.0 + 3.0


def test_what_runs_beside_a_collective_is_slowed() -> None:
    units = [unit(10, 4.0, 1.0, 1.0)]
    none = (column(0.0), column(0.0))
    fast, slow = (backward_pass(none[0], units, none[0], none, column(v))[0] for v in (1.0, 0.75))
    # a gather and a reduce-scatter beside each of 10 layers, but one of each with nothing beside
    assert slow - fast == pytest.approx(0.25 * (2 * 10 - 2))
