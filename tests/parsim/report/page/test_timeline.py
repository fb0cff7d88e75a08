from __future__ import annotations

from collections.abc import Callable

import pytest

from parsim.errors import InputError
from parsim.report.page.timeline import to_html
from parsim.timelines.timeline import Timeline
from tests.parsim.report.page.parsed import Page

Pipeline = Callable[..., Timeline]


def test_page_holds_title_summary_and_picture(pipeline: Pipeline) -> None:
    page = Page(to_html(pipeline(4, 4), summary={"step time": "1.2 s", "MFU": "51 %"}))
    assert page.open == []
    assert page.cells == ["pp=4 v=1 m=4 1F1B", "step time", "1.2 s", "MFU", "51 %"]
    assert page.seen.count("svg") == 1
    assert page.seen.count("path") > 32


def test_page_refers_to_nothing_outside_itself(pipeline: Pipeline) -> None:
    text = to_html(pipeline(2, 2, communication=True, memory=True), summary={})
    page = Page(text)
    assert page.references
    assert all(reference.startswith("#") for reference in page.references)
    assert "http" not in text
    assert not {"script", "link", "img", "iframe"} & set(page.seen)


def test_every_reference_has_its_definition(pipeline: Pipeline) -> None:
    text = to_html(pipeline(2, 2, 2, communication=True), summary={})
    for reference in set(Page(text).references):
        assert f'id="{reference[1:]}"' in text


def test_texts_are_escaped(pipeline: Pipeline) -> None:
    timeline = Timeline(spans=pipeline(2, 2).spans, meta={"plan": "<b>&"})
    page = Page(to_html(timeline, summary={"<script>": "a & 'b'", "$cost": "$title"}))
    assert page.cells == ["<b>&", "<script>", "a & 'b'", "$cost", "$title"]
    assert "script" not in page.seen


def test_memory_and_critical_path_are_drawn_where_there_are_any(pipeline: Pipeline) -> None:
    full = pipeline(2, 2, memory=True)
    bare = Timeline(spans=full.spans, meta=full.meta)
    assert to_html(full, summary={}).count('id="axes_2"') == 1
    assert to_html(bare, summary={}).count('id="axes_2"') == 0


def test_same_timeline_same_page(pipeline: Pipeline) -> None:
    timeline = pipeline(2, 4, 2, communication=True)
    assert to_html(timeline, summary={"a": "b"}) == to_html(timeline, summary={"a": "b"})


def test_nothing_to_draw_is_refused() -> None:
    with pytest.raises(InputError, match="no span that takes time"):
        to_html(Timeline(spans=()), summary={})
