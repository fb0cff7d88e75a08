"""What a guide recommends, and the reasons it gives."""

from __future__ import annotations

from dataclasses import replace

import pytest

from parsim import search
from parsim.guide.compare import guide
from parsim.guide.record import FamilyRow, Guide, choose
from parsim.scenario import load_scenario
from parsim.sim.confidence.memory_fit import Fit
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


LLAMA = {
    "model.seq_len": "8192",
    "cluster.nodes": "8",
    "training": "{global_batch_size: 512, precision: bf16}",
}


@pytest.mark.parametrize(("stack", "stage"), [("megatron-bridge", 1), ("torchtitan", 2)])
def test_sharding_goes_as_far_as_is_best(stack: str, stage: int) -> None:
    """Llama 3 8B on 64 H100s: of one replica a device ZeRO's stage is the one that search takes."""
    sets = LLAMA | {"software": stack, "plan": "{microbatch_size: 1}", "search": "{}"}
    scenario = load_scenario(SCENARIOS / "llama3-8b-dgx-h100.yaml", sets)
    guided = guide(scenario)
    assert guided.chosen is not None
    assert (guided.chosen.name, guided.chosen.prediction is None) == ("ZeRO / FSDP", False)
    assert guided.chosen.prediction is not None
    assert guided.chosen.prediction.plan.zero_stage == stage
    assert guided.chosen.prediction.step_time == search(scenario, top=1).plans[0].step_time
    split = row(guided, "tensor").prediction
    assert split is not None
    assert split.plan.sequence_parallel


def test_of_equals_one_that_is_tight_comes_last(tiny: Guide) -> None:
    first, second = row(tiny, "DDP"), row(tiny, "ZeRO / FSDP")
    assert first.prediction is not None
    tight = replace(first, prediction=replace(first.prediction, fit=Fit.TIGHT))
    same = replace(second, samples_per_second=first.samples_per_second)
    assert choose([first, same]) is first
    assert choose([tight, same]) is same
    assert choose([tight]) is tight


def test_rates_keep_their_digits(tiny: Guide) -> None:
    told = {0.01234: "0.0123", 2.5: "2.5", 72.84: "72.8", 3050.9: "3,051"}
    assert [replace(tiny.rows[0], samples_per_second=rate).rate for rate in told] == [
        *told.values()
    ]


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
