"""Generated blocks of pages, and the pages' links."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from parsim.errors import InputError
from parsim.report.writing import fill_pages

ROOT = Path(__file__).parents[3]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(ROOT.glob("docs/*.md"))]


def test_each_block_is_filled_in_the_page_that_has_it(tmp_path: Path) -> None:
    first, second = tmp_path / "a.md", tmp_path / "b.md"
    first.write_text("x\n<!-- one:begin (by hand) -->\nold\n<!-- one:end -->\n", encoding="utf-8")
    second.write_text("<!-- two:begin -->\n<!-- two:end -->\ny\n", encoding="utf-8")
    fill_pages([first, second], {"two": "2", "one": r"\1"})
    assert first.read_text("utf-8") == ("x\n<!-- one:begin (by hand) -->\n\\1\n<!-- one:end -->\n")
    assert second.read_text("utf-8") == "<!-- two:begin -->\n2\n<!-- two:end -->\ny\n"


def test_a_block_that_no_page_has_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    page = tmp_path / "a.md"
    page.write_text("<!-- one:begin -->\nold\n<!-- one:end -->\n", encoding="utf-8")
    with pytest.raises(InputError, match="no block <!-- two:begin -->"):
        fill_pages([page], {"one": "new", "two": "2"})
    assert "old" in page.read_text("utf-8")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_of_pages_lead_to_files(page: Path) -> None:
    links = re.findall(r"\]\((?!http|#)([^)#\s]+)", page.read_text("utf-8"))
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_every_page_is_reached_from_the_readme() -> None:
    text = PAGES[0].read_text("utf-8")
    assert [page.name for page in PAGES[2:] if f"](docs/{page.name})" not in text] == []
    assert len(text.splitlines()) <= 110
