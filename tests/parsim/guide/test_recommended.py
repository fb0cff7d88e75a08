"""What a guide recommends, and the reasons it gives."""

from __future__ import annotations

import pytest

from parsim.guide.compare import guide
from parsim.guide.record import FamilyRow, Guide, choose
from parsim.scenario import load_scenario
from tests.parsim.guide.guides import SCENARIOS, row


def test_speed_ups_are_over_one_device_with_its_share_of_the_batch(resnet: Guide) -> None:
    alone = row(resnet, "one device")
    assert alone.prediction is not None
    assert alone.prediction.plan.global_batch_size == 2048 / 8
    assert (alone.speed_up, alone.efficiency) == (1.0, 1.0)
    ddp = row(resnet, "DDP")
    assert ddp.efficiency == pytest.approx(ddp.samples_per_second / alone.samples_per_second / 8)


def test_ddp_is_recommended_where_it_is_within_three_percent(resnet: Guide) -> None:
    assert resnet.chosen is not None
    assert resnet.chosen.name == "DDP"
    fastest = max(r.samples_per_second for r in resnet.rows if r.same_training and r.fits)
    assert resnet.chosen.samples_per_second >= 0.97 * fastest
    assert resnet.reasons[0].startswith("the model fits one device")


def test_what_does_not_fit_is_not_recommended() -> None:
    guided = guide(load_scenario(SCENARIOS / "llama3-70b-dgx-h100.yaml"))
    assert not row(guided, "DDP").fits
    assert row(guided, "DDP").limits == "memory"
    assert guided.chosen is not None
    assert guided.chosen.fits
    assert "does not fit one device" in guided.reasons[0]
    assert "DDP does not fit" in guided.reasons


def test_nothing_is_chosen_of_nothing() -> None:
    assert (
        choose([FamilyRow(name="DDP", same_training=True, prediction=None, reason="why")]) is None
    )


def test_limits_are_whole_sentences(tiny: Guide) -> None:
    words = row(tiny, "parameter server").limits
    assert words.startswith("synchronisation, ")
    assert "; busiest is the wire into server 0, " in words
    assert row(tiny, "hybrid").reason == (
        "needs 4 devices or more, two stages of two each; there are 2"
    )


def test_a_faster_family_is_passed_over_with_a_reason(tiny: Guide) -> None:
    assert tiny.chosen is not None
    assert tiny.chosen.name == "DDP"
    parallel = row(tiny, "DataParallel")
    assert parallel.samples_per_second > tiny.chosen.samples_per_second
    (reason,) = [text for text in tiny.reasons if text.startswith("DataParallel is predicted")]
    assert "Python's lock between its threads: predictions do not tell 3 % apart" in reason
    assert reason.endswith("and DDP is simpler to run")
