"""The page of `parsim report`: its parts, how its plan stands, and files it refuses."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from parsim import api
from parsim.cli.app import main
from parsim.report.page.answer import Answer, answer_page, standing_words
from parsim.scenario import Scenario, load_scenario
from tests.parsim.report.page.parsed import Page

SMALL = Path("scenarios/gpt2-small-cpu.yaml")


@pytest.fixture(scope="module")
def scenario() -> Scenario:
    return load_scenario(SMALL)


@pytest.fixture(scope="module")
def answer(scenario: Scenario) -> Answer:
    return Answer(
        title="a <small> model",
        prediction=api.simulate(scenario),
        ranked=api.search(scenario, top=3),
        stated=True,
        evidence="no runs",
        scenario_text="model: gpt2-small",
    )


def test_a_page_has_cards_picture_and_tables_and_needs_nothing_else(answer: Answer) -> None:
    text = answer_page(answer)
    page = Page(text)
    assert page.open == []
    assert page.cells[0] == "a <small> model"
    assert page.seen.count("h2") == 4
    assert page.seen.count("img") == 1
    assert not {"script", "link", "iframe"} & set(page.seen)
    outside = [x for x in page.references if not x.startswith(("#", "data:image/png;base64,"))]
    assert outside == []
    assert answer.prediction.plan.label() in text
    assert all(ranked.plan.label() in text for ranked in answer.ranked.plans[:1])


def test_the_mark_of_the_interval_stands_where_the_prediction_does(answer: Answer) -> None:
    interval = answer.prediction.interval
    share = (answer.prediction.step_time - interval.low) / (interval.high - interval.low)
    assert f'<u style="left: {50.0 * (0.5 + share):.1f}%"></u>' in answer_page(answer)


def test_how_a_plan_stands_among_all(answer: Answer) -> None:
    first, mine = answer.ranked.plans[0], answer.prediction
    assert standing_words(replace(answer, stated=False)).startswith("the first of all plans")
    same = replace(mine, plan=first.plan)
    assert standing_words(replace(answer, prediction=same)).startswith("the first of all plans")
    other = replace(mine, plan=replace(first.plan, bucket_bytes=12345.0), interval=first.interval)
    slow = replace(other, step_time=2.0 * first.step_time)
    words = standing_words(replace(answer, prediction=slow))
    assert words.endswith("50.0 % less, within its interval")
    surer = replace(slow, interval=replace(first.interval, low=1.9 * first.step_time))
    assert standing_words(replace(answer, prediction=surer)).endswith("beyond its interval")
    even = replace(other, step_time=first.step_time)
    assert standing_words(replace(answer, prediction=even)).endswith("is no faster")


def test_the_command_writes_equal_bytes(tmp_path: Path) -> None:
    pages = [tmp_path / name for name in ("first.html", "second.html")]
    for path in pages:
        assert main(["report", str(SMALL), "-o", str(path), "--top", "2"]) == 0
    assert pages[0].read_bytes() == pages[1].read_bytes()


def test_what_closed_forms_leave_out_is_simulated_on_shared_links(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    words = ["report", "scenarios/llama2-7b-shared-fabric.yaml", "-o", str(page), "--top", "1"]
    assert main(words) == 0
    assert '<h2 id="on-shared-links">' in page.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["-o", "page.txt"], "page.txt: a report is a page; allowed: .html"),
        (["-o", "x.html", "--set", "plan.tp=3"], "tp"),
        ([], "-o"),
    ],
)
def test_wrong_options(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(SMALL), *words]) == 2
    assert message in capsys.readouterr().err
