"""What a person reads on the terminal."""

from __future__ import annotations

from dataclasses import replace

import pytest
from rich.console import RenderableType

from parsim.plan import Plan, PlanSpace
from parsim.planner import Ranked, SearchResult
from parsim.report.text.measured.steps import validation_view
from parsim.report.text.planning.search import search_view
from parsim.report.text.prediction import prediction_view
from parsim.report.text.tables import console
from parsim.scenario import load_scenario
from parsim.sim import simulate
from parsim.sim.confidence.interval import Interval
from parsim.sim.confidence.memory_fit import Fit
from parsim.sim.prediction import BUBBLE_DEFINITION, Prediction
from parsim.units import GIB
from parsim.validation.validate import Validation
from parsim.validation.validated_row import ValidatedRow
from tests.commands import ROOT

SMALL = ROOT / "scenarios" / "gpt2-small-cpu.yaml"


@pytest.fixture(scope="module")
def prediction() -> Prediction:
    scenario = load_scenario(SMALL)
    assert scenario.plan is not None
    predicted = simulate(scenario.job, scenario.plan)
    return replace(predicted, fullest=replace(predicted.fullest, capacity=4 * GIB, context=0.0))


@pytest.fixture
def shown(capsys: pytest.CaptureFixture[str]) -> Shown:
    return Shown(capsys)


class Shown:
    """Prints a view as a command does and gives its lines, runs of spaces as one."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self.capsys = capsys

    def __call__(self, view: RenderableType) -> list[str]:
        console().print(view)
        return [" ".join(line.split()) for line in self.capsys.readouterr().out.splitlines()]


# --------------------------------------------------------------------------- predictions


def test_a_prediction(shown: Shown, prediction: Prediction) -> None:
    known = replace(
        prediction,
        step_time=2.0,
        pipeline_time=1.5,
        device_span=1.25,
        tokens_per_second=12345.6,
        mfu=0.4,
        hfu=0.5,
        peak_flops=312e12,
        bubble_fraction=0.25,
        bubble_overhead=1 / 3,
        fullest=replace(prediction.fullest, rank=1, peak_allocated=3 * GIB),
        notes=("one [x]", "two"),
    )
    lines = shown(prediction_view(known))
    assert lines[0] == known.plan.label()
    for line in (
        "memory 3.0 GiB of 4.0 GiB on rank 1: fits",
        "step time 2.000 s (pipeline phase 1.500 s, longest device span 1.250 s)",
        "tokens/s 12,346",
        "MFU / HFU 40.0 % / 50.0 % of 312 TFLOP/s dense fp32",
        "bubble 25.0 % of the pipeline phase (33.3 % over busy time)",
        "memory at the peak of pipeline rank 1",
        "note: one [x]",
        "note: two",
    ):
        assert line in lines
    assert BUBBLE_DEFINITION in " ".join(lines)


@pytest.mark.parametrize(
    ("peak", "text"),
    [(12e9, "0.012"), (312e12, "312"), (989.4e12, "989.4"), (2250e12, "2250")],
)
def test_peaks_of_slow_and_fast_devices(
    shown: Shown, prediction: Prediction, peak: float, text: str
) -> None:
    lines = shown(prediction_view(replace(prediction, peak_flops=peak)))
    assert any(f"of {text} TFLOP/s dense fp32" in line for line in lines)


def test_what_does_not_fit_is_told_first(shown: Shown, prediction: Prediction) -> None:
    fullest = replace(prediction.fullest, peak_allocated=6 * GIB)
    known = replace(prediction, fullest=fullest, fit=Fit.TOO_LARGE)
    lines = shown(prediction_view(known))
    told = "memory 6.0 GiB of 4.0 GiB on rank 0: does not fit, 2.0 GiB too much"
    assert next(line for line in lines[1:] if line) == told


def test_shares_and_bars(shown: Shown, prediction: Prediction) -> None:
    known = replace(
        prediction, breakdown={"forward": 1.0, "back_ward": 3.0, "nothing": 0.0, "rounding": 1e-16}
    )
    lines = shown(prediction_view(known))
    assert "forward 1.000 s 25.0 % " + 7 * "█" in lines
    assert "back ward 3.000 s 75.0 % " + 21 * "█" in lines
    assert not any(line.startswith(("nothing", "rounding")) for line in lines)


# --------------------------------------------------------------------------- searches


def test_a_search(shown: Shown) -> None:
    entry = Ranked(
        plan=Plan(pp=2, num_microbatches=4),
        step_time=0.5,
        interval=Interval(low=0.4, high=0.6, basis="9 runs"),
        tied=True,
        tokens_per_second=2e6,
        speed_unit="tokens/s",
        mfu=0.456,
        bubble_fraction=0.125,
        peak_allocated=10 * GIB,
        fit=Fit.FITS,
        margin=0.0625,
        breakdown={"forward": 0.1, "backward": 0.3, "bubble": 0.0955, "optimizer": 0.0045},
    )
    result = SearchResult(
        plans=(
            entry,
            replace(entry, plan=Plan(pp=2, v=2, num_microbatches=4), step_time=0.6, tied=False),
            replace(entry, plan=Plan(tp=2), step_time=0.75, tied=False),
        ),
        counts={
            "enumerated": 12345,
            "illegal": 300,
            "out_of_memory": 40,
            "tight": 5,
            "slower": 11000,
            "evaluated": 1000,
        },
        faster_tight=replace(entry, step_time=0.45, fit=Fit.TIGHT, peak_allocated=70 * GIB),
        illegal_reasons={"tp=3 does not divide heads=32": 299, f"tp=5 does{' not' * 40}": 1},
        limits=(75 * GIB,),
        optimality="exhaustive: [all] of it",
        left_out={
            "stage_layers": "other cuts",
            "dp_shard": "parts of replicas, but with space: full or search.dp_shard",
            "tp": "all but 8",
            "etp": "all but 1",
            "pp": "all but >= 2",
        },
        seconds=1.0,
        space=PlanSpace(global_batch_size=4),
    )
    assert shown(search_view(result)) == [
        "# plan step time 80 % interval tokens/s MFU bubble peak memory",
        "1 tp1 pp2 dp1 mb1 m4 1f1b 500.000 ms 400.000 to 600.000 ms "
        "2,000,000 45.6 % 12.5 % 10.0 GiB",
        "also v2: slower, no less memory",
        "3 tp2 pp1 dp1 mb1 m1 no-pipeline 750.000 ms 400.000 to 600.000 ms "
        "2,000,000 45.6 % 12.5 % 10.0 GiB",
        "",
        "where the step of 1 goes: backward 60 %, forward 20 %, bubble 19 %",
        "interval of 1: 9 runs",
        "margin of 1: 6.2 % of usable memory beside the allocator's reserve; plans that leave less "
        "than theirs free are tight",
        "tight, but 10.0 % faster than 1: tp1 pp2 dp1 mb1 m4 1f1b (450.000 ms, peak 70.0 GiB, "
        "margin 6.2 %); it may run out of memory or be slower than predicted",
        "",
        "12,345 plans: 300 illegal; of the others 40 do not fit (more than 75.0 GiB), "
        "5 tight, 11,000 proven slower, fitting or not, 1,000 ranked",
        "illegal, 299 plans: tp=3 does not divide heads=32",
        f"illegal, 1 plan: tp=5 does{' not' * 30} ...",
        "exhaustive: [all] of it",
        "not looked at: stage_layers (other cuts), and, unless space: full or search names them, "
        "dp_shard",
        "all plans have tp=8; pp >= 2",
        "the same in all plans (--json has the values): etp",
    ]
    wide = tuple(replace(plan, margin=0.25) for plan in result.plans)
    for stated in (None, 0.25):
        asked = replace(result.space, memory_margin=stated)
        page = "\n".join(shown(search_view(replace(result, plans=wide, space=asked))))
        assert ("search.memory_margin states another" in page) == (stated is None)
    outcomes = {"plans": 1500, "illegal": 4, "unfit": 16, "slower": 1400, "evaluated": 20}
    unequal = {f"unequal_{name}": count for name, count in (*outcomes.items(), ("left", 60))}
    told = shown(search_view(replace(result, counts={**result.counts, **unequal})))
    assert (
        "1,500 plans with unequal stages beside them: 4 illegal, 16 do not fit, "
        "1,400 slower by a lower bound, 20 ranked, 60 not looked at"
    ) in told


# --------------------------------------------------------------------------- validations

ROWS = (
    ValidatedRow(
        table="one",
        row_id="one-1",
        model="GPT",
        plan="tp1",
        predicted_step=1.1,
        measured_step=1.0,
        predicted_peak=9.0,
        measured_peak=10.0,
    ),
    ValidatedRow(
        table="one",
        row_id="one-2",
        model="GPT",
        plan="tp2",
        predicted_step=0.8,
        measured_step=1.0,
        predicted_peak=9.0,
    ),
    ValidatedRow(table="one", row_id="one-3", reason="tp='[x]' is not a whole number"),
    ValidatedRow(table="two", row_id="two-1", reason="no step time"),
)

SUMMARY = [
    "step time, (predicted - measured) / measured",
    "table n skipped mean median p90 max bias",
    "one 2 1 15.0 % 15.0 % 20.0 % 20.0 % -5.0 %",
    "two 0 1 - - - - -",
    "",
    "peak memory",
    "table n skipped mean median p90 max bias",
    "one 1 2 10.0 % 10.0 % 10.0 % 10.0 % -10.0 %",
]


def test_a_summary_of_every_table(shown: Shown) -> None:
    assert shown(validation_view(Validation(rows=ROWS), rows=False)) == SUMMARY


def test_every_row_on_request(shown: Shown) -> None:
    assert shown(validation_view(Validation(rows=ROWS), rows=True)) == [
        "one",
        "row model plan predicted measured error memory error",
        "one-1 GPT tp1 1.100 s 1.000 s +10.0 % -10.0 %",
        "one-2 GPT tp2 800.000 ms 1.000 s -20.0 % -",
        "one-3 skipped tp='[x]' is not a whole number",
        "",
        "two",
        "row model plan predicted measured error memory error",
        "two-1 skipped no step time",
        "",
        *SUMMARY,
    ]


def test_no_memory_is_no_table_of_it(shown: Shown) -> None:
    rows = tuple(replace(row, measured_peak=None) for row in ROWS)
    assert shown(validation_view(Validation(rows=rows), rows=False)) == SUMMARY[:4]


# --------------------------------------------------------------------------- the console


def test_a_pipe_has_one_width_and_no_colour(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    console().print("x" * 300, style="bold red")
    console(stderr=True).print("y" * 200)
    out, err = capsys.readouterr()
    assert out == "x" * 160 + "\n" + "x" * 140 + "\n"
    assert err == "y" * 160 + "\n" + "y" * 40 + "\n"


def test_texts_are_printed_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    console().print("[bold]:cat:[/x]")
    assert capsys.readouterr().out == "[bold]:cat:[/x]\n"
