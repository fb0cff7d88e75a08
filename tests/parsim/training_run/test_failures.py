"""Goodput: the worked numbers, Daly's interval against the exact optimum, what is refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parsim.errors import InputError
from parsim.training_run.failures import Failures, daly, goodput, goodput_of, young
from parsim.units import DAY

BETWEEN = 11_135.0
"""Seconds between interruptions of 16,384 devices, one failing every 2,112 days."""


def test_the_rate_of_llama_3() -> None:
    """419 unexpected interruptions in 54 days: one in 3.09 hours (arXiv:2407.21783, table 5)."""
    assert Failures().between(16_384) == pytest.approx(54 * DAY / 419, rel=2e-3)


@pytest.mark.parametrize(
    ("stall", "by_young", "by_daly", "share"), [(60.0, 1156, 1116, 0.853), (5.0, 334, 330, 0.919)]
)
def test_worked_example(stall: float, by_young: int, by_daly: int, share: float) -> None:
    """By hand: sqrt(2 x 60 x 11135) = 1156; stalls of seconds are what 90 % goodput needs."""
    assert round(young(stall, BETWEEN)) == by_young
    assert round(daly(stall, BETWEEN)) == by_daly
    assert goodput_of(daly(stall, BETWEEN), stall, 600.0, BETWEEN) == pytest.approx(share, abs=5e-4)


@given(between=st.floats(1e3, 1e7), share=st.floats(1e-5, 1 / 30), restart=st.floats(0.0, 1000.0))
def test_dalys_interval_is_the_optimum_of_the_exact_form(
    between: float, share: float, restart: float
) -> None:
    stall = share * between
    interval = daly(stall, between)
    tried = interval * np.linspace(0.5, 2.0, 301)
    best = max(goodput_of(float(t), stall, restart, between) for t in tried)
    assert goodput_of(interval, stall, restart, between) >= best * (1 - 1e-3)


@given(stall=st.floats(1.0, 1e4), between=st.floats(10.0, 1e8), restart=st.floats(0.0, 1e5))
def test_goodput_is_a_share(stall: float, between: float, restart: float) -> None:
    share = goodput_of(daly(stall, between) + 1.0, stall, restart, between)
    assert 0.0 <= share < 1.0


def test_unstated_rates_have_a_band_and_stated_ones_none() -> None:
    usual = goodput(Failures(), devices=1024, parameters=175e9).share
    assert usual.low < usual.value < usual.high
    stated = Failures(device_mtbf=1000 * DAY, stated=frozenset({"device_mtbf"}))
    share = goodput(stated, devices=1024, parameters=175e9).share
    assert share.low == share.value == share.high


def test_causes_that_do_not_grow_with_the_job_come_on_top() -> None:
    """RSC-1 at 1,024 devices: its node rate alone says 28.8 h, and 7.9 h were seen."""
    rsc = Failures(device_mtbf=1024 * 28.8 * 3600, job_mtbf=1 / (1 / 7.9 - 1 / 28.8) * 3600)
    assert rsc.between(1024) == pytest.approx(7.9 * 3600)


def test_a_run_that_never_comes_to_its_checkpoint_is_refused() -> None:
    never = replace(Failures(), device_mtbf=60.0, stated=frozenset({"device_mtbf"}))
    with pytest.raises(InputError, match=r"less than 1 % of the time would train; raise failures"):
        goodput(never, devices=1024, parameters=1e9)
