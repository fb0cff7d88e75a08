"""Tables on narrow screens: lines break between words, and numbers stay whole."""

from __future__ import annotations

import pytest
from rich.console import Console

from parsim.report.text.tables import table

LABEL = "tp1 pp2 dp32 mb1 m16 interleaved_1f1b v6 zero2 recompute-selective"


def lines(width: int) -> list[str]:
    rows = table("# | plan | step time | 80 % interval | peak memory", right=(0, 2, 3, 4))
    rows.add_row("1=", LABEL, "6.855 s", "6.268 to 9.769 s", "58.0 GiB")
    console = Console(width=width, no_color=True)
    with console.capture() as text:
        console.print(rows)
    return text.get().splitlines()


@pytest.mark.parametrize("width", [72, 80, 100, 160])
def test_no_word_of_a_plan_and_no_number_is_broken(width: int) -> None:
    words = {word for line in lines(width) for word in line.split()}
    assert set(LABEL.split()) <= words
    assert "…" not in "".join(lines(width))
    assert any("6.855 s  6.268 to 9.769 s     58.0 GiB" in line for line in lines(width))


def test_a_table_drawn_narrow_is_wide_again_on_a_wide_screen() -> None:
    rows = table("# | plan")
    rows.add_row("1", LABEL)
    narrow, wide = (Console(width=width, no_color=True) for width in (40, 120))
    for console, count in ((narrow, 3), (wide, 2), (narrow, 3)):
        with console.capture() as text:
            console.print(rows)
        assert len(text.get().splitlines()) == count
