"""What a calibration leaves open in whole layers: timed ones, missing ones, the clock."""

from __future__ import annotations

from dataclasses import replace
from math import log

import pytest

from parsim.cluster.evidence import RecordedStep
from parsim.cluster.hardware import Cluster, Device, Measured, System
from parsim.cluster.reader import load_catalog
from parsim.cost.job import Job
from parsim.cost.layer.layers import own_name
from parsim.cost.layer_doubt import CONTEXT_ALONE, NEVER, SPLIT_ALONE, WHOLE, layer_doubt
from parsim.cost.recorded import recorded_notes, step_errors, step_factor
from parsim.cost.software import software
from parsim.cost.step.layer_table import LayerTable
from parsim.model.transformer import TransformerSpec, build_transformer
from parsim.plan import Plan, PlanTable
from parsim.sim import simulate
from parsim.sim.confidence.basis import Z80

SPEC = TransformerSpec(
    name="tiny", num_layers=4, hidden_size=256, num_attention_heads=4, num_key_value_heads=4,
    head_dim=64, ffn_hidden_size=1024, vocab_size=1024, seq_len=128, positions=128,
)  # fmt: skip
PLAN = Plan(precision="fp32", num_microbatches=4, dp_replicate=2)
SPLIT = Plan(precision="fp32", num_microbatches=4, tp=2, sequence_parallel=True)
ENDS = ("embedding", "head")
RUN = RecordedStep(
    date="2026-11-22", model="tiny", plan="another", split="none", sharded=False, ranks=1, n=10,
    forward=1.1, backward=1.2, optimizer=1.5, step=1.15, left=1.02,
)  # fmt: skip


def lines(*names: str, ratio: float = 1.2) -> Measured:
    """Whole layers of any size, all so many times the sum of their kernels."""
    sizes = [10.0**i for i in range(-7, 4)]
    return {
        f"{name}_{way}": tuple((x, ratio) for x in sizes)
        for name in names
        for way in ("forward", "backward")
    }


def device(*names: str, spread: float = 0.04, **other: object) -> Device:
    measured = lines(*names)
    base = load_catalog().device("cpu")
    text = {"spreads": {"clock": 0.02, **dict.fromkeys(measured, spread)}, **other}
    return replace(base, calibrated=True, residuals=measured, **text)  # type: ignore[arg-type]


def job_on(chosen: Device) -> Job:
    system: System = replace(load_catalog().system("cpu"), device=chosen, calibrated=True)
    model = build_transformer(SPEC)
    cluster = Cluster(system=system, num_nodes=1)
    return Job(model=model, cluster=cluster, software=software("executor-cpu"))


def doubt(chosen: Device, plan: Plan = PLAN, after: float = 0.0):  # type: ignore[no-untyped-def]
    job = job_on(chosen)
    layers = LayerTable.of(job, PlanTable.of([plan]))
    return layer_doubt(job, plan, layers, within=0.0, after=after)


def test_timed_layers_are_as_sure_as_their_timings() -> None:
    result = doubt(device("block", *ENDS))
    assert result.missing == ()
    assert result.untimed == 0.0
    assert result.clock == 0.02
    assert result.whole == pytest.approx(1.0)
    assert 0.02 < result.timed <= 0.04  # the block has most of the step, and parts err apart
    assert doubt(device("block", *ENDS, spread=0.08)).timed == pytest.approx(2.0 * result.timed)


def test_what_was_not_timed_is_as_far_off_as_its_likes_are() -> None:
    reason = {"block": "time over: about 5 s, 2 s left"}
    result = doubt(device("split_block", *ENDS, unmeasured=reason))
    (block,) = result.missing
    assert (block.kind, block.reason) == ("block", reason["block"])
    assert block.deviation == pytest.approx(log(1.2))  # split blocks of this device are
    assert result.untimed == pytest.approx(block.share * log(1.2))
    assert result.whole == pytest.approx(1.0 - block.share)


def test_without_any_like_it_the_suite_s_deviation_counts() -> None:
    result = doubt(device(*ENDS))
    assert [(part.kind, part.deviation, part.reason) for part in result.missing] == [
        ("block", WHOLE, NEVER)
    ]


def test_split_layers_between_processors_are_hard_to_know() -> None:
    result = doubt(device("block", *ENDS), SPLIT)
    assert {part.kind for part in result.missing} == {
        "sequence_block",
        "sequence_embedding",
        "sequence_head",
    }
    assert {part.deviation for part in result.missing} == {SPLIT_ALONE}


def test_layers_that_share_sequences_are_not_those_without() -> None:
    """The blocks exchange keys and values; embedding and head are those of any plan."""
    shared = Plan(precision="fp32", num_microbatches=4, cp=2)
    (block,) = doubt(device("block", *ENDS), shared).missing
    assert (block.kind, block.deviation) == ("context_block", CONTEXT_ALONE)
    assert doubt(device("context_block", *ENDS), shared).missing == ()


def test_a_layer_that_was_timed_with_context_ranks_is_priced_so() -> None:
    shared = PlanTable.of([Plan(precision="fp32", cp=2)])
    alone = PlanTable.of([Plan(precision="fp32")])
    bare, timed = device(*ENDS), device("context_block", *ENDS)
    ratios = []
    for table in (shared, alone):
        seconds = [
            LayerTable.of(job_on(chosen), table).kinds[0].forward.seconds
            for chosen in (bare, timed)
        ]
        ratios.append(float((seconds[1] / seconds[0])[0]))
    assert ratios == pytest.approx([1.2, 1.0], rel=1e-3)


def test_layers_of_its_own_make_up_go_before_others_of_the_name() -> None:
    """A block with other operators is of the same name: it says less of this one."""
    name = own_name("block", job_on(device()).model.kinds[0].make_up)
    assert name == "block-norm2-linear4-attention-residual2-gelu"
    both = device("block", *ENDS)
    own_lines = lines(name, ratio=1.5)
    spreads = {**both.spreads, **dict.fromkeys(own_lines, 0.01)}
    timed = replace(both, residuals={**both.residuals, **own_lines}, spreads=spreads)
    table = PlanTable.of([PLAN])
    seconds = [
        LayerTable.of(job_on(chosen), table).kinds[0].forward.seconds
        for chosen in (device(*ENDS), both, timed)
    ]
    ratios = [float((each / seconds[0])[0]) for each in seconds]
    assert ratios == pytest.approx([1.0, 1.2, 1.5], rel=1e-3)
    assert doubt(timed).timed < 0.5 * doubt(both).timed
    other = replace(timed, residuals={**both.residuals, **lines("block-norm4", ratio=1.5)})
    other_seconds = LayerTable.of(job_on(other), table).kinds[0].forward.seconds
    assert float((other_seconds / seconds[0])[0]) == pytest.approx(1.2, rel=1e-3)


def test_what_follows_the_last_backward_is_no_layer_s() -> None:
    missing = [doubt(device(*ENDS), after=after).missing[0].share for after in (0.0, 0.5)]
    assert missing[1] == pytest.approx(0.5 * missing[0])


def test_a_file_that_does_not_say_is_left_as_it_is() -> None:
    result = doubt(replace(device("block"), spreads={}))
    assert (result.timed, result.untimed, result.clock, result.missing) == (0.0, 0.0, 0.0, ())


def test_the_interval_widens_and_says_why() -> None:
    whole = simulate(job_on(device("block", *ENDS)), PLAN)
    reason = {"block": "time over: about 5 s, 2 s left"}
    lacking = simulate(job_on(device(*ENDS, unmeasured=reason)), PLAN)
    widths = [log(each.interval.high / each.interval.low) / 2.0 for each in (whole, lacking)]
    assert widths[1] > Z80 * WHOLE * 0.8 > widths[0]
    assert "whole layers that were not timed add" in lacking.interval.basis
    assert "time over: about 5 s, 2 s left" in lacking.interval.basis
    assert "not timed" not in whole.interval.basis


def test_recorded_runs_correct_plans_of_their_condition_alone() -> None:
    corrected = device("block", *ENDS, steps=(RUN, replace(RUN, forward=1.2)))
    table = PlanTable.of([PLAN])
    assert step_factor(corrected, table, "forward") == pytest.approx((1.1 * 1.2) ** 0.5)
    assert step_factor(corrected, PlanTable.of([SPLIT]), "forward") == pytest.approx(1.0)
    assert step_factor(device("block"), table, "forward") == 1.0
    before, after = (simulate(job_on(entry), PLAN) for entry in (device("block", *ENDS), corrected))
    for part, factor in (("forward", (1.1 * 1.2) ** 0.5), ("backward", 1.2), ("optimizer", 1.5)):
        assert after.breakdown[part] == pytest.approx(factor * before.breakdown[part], rel=0.02)
    assert "corrected by what 2 recorded runs showed" in " ".join(after.notes)
    assert "calibrated from a run of this very plan" not in " ".join(after.notes)


def test_a_prediction_of_the_recorded_run_itself_says_so() -> None:
    corrected = device("block", steps=(replace(RUN, plan=PLAN.label()),))
    assert "calibrated from a run of this very plan" in recorded_notes(corrected, "tiny", PLAN)[1]
    assert len(recorded_notes(corrected, "another", PLAN)) == 1
    assert recorded_notes(corrected, "tiny", SPLIT) == ()


def test_what_recorded_runs_leave() -> None:
    first, two = RUN, replace(RUN, step=1.3)
    assert step_errors(device("block", steps=(first,)), PLAN) == (log(1.02),)
    # each of two is predicted by the other
    apart = log(1.3 / 1.15)
    both = step_errors(device("block", steps=(first, two)), PLAN)
    assert both == pytest.approx((-apart, apart))
    assert step_errors(device("block", steps=(first, two)), SPLIT) == (log(1.15), log(1.3))
    assert step_errors(device("block"), PLAN) == ()
