"""The page of claims: its tables follow from predictions that anyone can repeat."""

from __future__ import annotations

import pytest

from parsim.fitting.reports.strategies import GROW_HEAD
from parsim.fitting.reports.strategy_claims import (
    ASYNCHRONOUS,
    DDP,
    HALF_SPEED,
    ONE_SERVER,
    SERVERS,
    Machines,
    growing,
)


def test_one_server_saturates_and_many_do_not() -> None:
    """With one server the samples a second do not grow from 8 to 32 machines."""
    few, many = (Machines("resnet50", count, "10Gb/s") for count in (8, 32))
    assert many.rate(ONE_SERVER) < few.rate(ONE_SERVER)
    assert many.rate(SERVERS) > 3.0 * few.rate(SERVERS)


def test_a_slow_machine_holds_back_all_reduce_more_than_servers() -> None:
    here = Machines("resnet50", 8, "100Gb/s")
    lost = here.rate(DDP, HALF_SPEED) / here.rate(DDP)
    kept = here.rate(ASYNCHRONOUS, HALF_SPEED) / here.rate(ASYNCHRONOUS)
    assert lost < 0.7 < kept


@pytest.mark.parametrize("model", ["resnet50", "bert-large"])
def test_faster_networks_scale_better(model: str) -> None:
    alone = Machines(model, 1, "1Gb/s").rate(DDP)
    scaled = [Machines(model, 8, rate).rate(DDP) / alone for rate in ("1Gb/s", "100Gb/s")]
    assert scaled[0] < 1.0 < scaled[1] < 8.0


def test_what_is_recommended_stands_apart_from_the_rates() -> None:
    row = next(iter(growing()))
    assert len(row) == len(GROW_HEAD)
    assert row[-2] in row[-1]
    assert ";" not in row[-2]
