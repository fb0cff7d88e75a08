"""Laws of intervals over all plans: what is less known is never narrower."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from parsim.sim.confidence.interval import Interval, step_interval
from parsim.sim.confidence.known_errors import Standing
from parsim.sim.confidence.step_parts import Parts
from tests.parsim.sim.confidence.known_groups import ERRORS, RANGES

shares = st.floats(0.0, 1.0)
standings = st.builds(
    Standing,
    device=st.sampled_from(["a100", "h100"]),
    software=st.sampled_from(["megatron", "nemo", "maxtext"]),
    system=st.sampled_from(["pod", "pond"]),
    release=st.sampled_from(["", "2.1", "2.2"]),
    calibrated=st.booleans(),
    generic=st.just(False),
    sizes=st.fixed_dictionaries(
        {"devices": st.floats(1.0, 1e5), "hidden_size": st.floats(64.0, 1e5)}
    ),
    parts=st.builds(
        Parts, host=shares, within=shares, after=shares, quantized=shares, pressed=shares
    ),
    kernels=shares,
    exchange=shares,
)


def wider(first: Interval, other: Interval) -> bool:
    return first.low <= other.low * (1.0 + 1e-9) and first.high >= other.high * (1.0 - 1e-9)


@given(where=standings, seconds=st.floats(1e-6, 1e6))
def test_the_prediction_is_always_inside(where: Standing, seconds: float) -> None:
    assert step_interval(where, seconds, ERRORS).covers(seconds)


@given(where=standings, factor=st.floats(1.0, 100.0), name=st.sampled_from(["devices",
       "hidden_size"]))  # fmt: skip
def test_farther_outside_is_never_narrower(where: Standing, factor: float, name: str) -> None:
    low, high = RANGES[name]
    for near, far in ((high * factor, high * factor * 2.0), (low / factor, low / factor / 2.0)):
        result = [
            step_interval(replace(where, sizes={**where.sizes, name: size}), 1.0, ERRORS)
            for size in (near, far)
        ]
        assert wider(result[1], result[0])


@given(where=standings)
def test_an_unknown_system_is_never_narrower(where: Standing) -> None:
    known = step_interval(replace(where, system="pod"), 1.0, ERRORS)
    assert wider(step_interval(replace(where, system="nobody's"), 1.0, ERRORS), known)


@given(where=standings, more=shares)
def test_harder_parts_are_never_narrower(where: Standing, more: float) -> None:
    for name in ("host", "within", "after", "quantized", "pressed"):
        grown = {name: max(getattr(where.parts, name), more)}
        harder = replace(where, parts=replace(where.parts, **grown))
        assert wider(step_interval(harder, 1.0, ERRORS), step_interval(where, 1.0, ERRORS))


@given(where=standings, less=shares)
def test_better_known_kernels_are_never_wider(where: Standing, less: float) -> None:
    surer = replace(where, kernels=where.kernels * less)
    assert wider(step_interval(where, 1.0, ERRORS), step_interval(surer, 1.0, ERRORS))
