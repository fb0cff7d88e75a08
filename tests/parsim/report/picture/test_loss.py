"""The picture of the loss: every step in its place, warm-up apart, guessing as a reference."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from parsim.errors import InputError
from parsim.report.picture.loss import caption, draw_loss

LOSSES = (5.6, 5.5, 5.0, 4.4, 4.1)


def drawn(losses: tuple[float, ...] = LOSSES, warmup: int = 2, **more: Any) -> Figure:
    return draw_loss(losses, warmup=warmup, vocab_rows=256, **more)


def curve(axes: Axes) -> Any:
    return next(line for line in axes.lines if line.get_linestyle() == "-")


def legend(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.legends[0].get_texts()]


def test_each_step_has_its_loss() -> None:
    axes = drawn().axes[0]
    np.testing.assert_array_equal(curve(axes).get_xdata(), range(5))
    np.testing.assert_array_equal(curve(axes).get_ydata(), LOSSES)
    assert axes.get_xlim() == (-0.5, 4.5)
    assert axes.get_xlabel() == "step"
    assert axes.get_ylabel() == "loss [nats per token]"


def test_the_loss_of_images_is_one_per_sample_and_guesses_classes() -> None:
    figure = drawn(per="sample")
    assert figure.axes[0].get_ylabel() == "loss [nats per sample]"
    assert legend(figure)[-1] == "guessing, ln(classes) = 5.545"


def test_guessing_is_a_line_at_ln_of_the_vocabulary() -> None:
    figure = drawn()
    line = next(line for line in figure.axes[0].lines if line.get_linestyle() == "--")
    assert set(np.asarray(line.get_ydata())) == {math.log(256)}
    assert legend(figure) == ["loss", "warm-up", "guessing, ln(vocabulary) = 5.545"]
    low, high = figure.axes[0].get_ylim()
    assert low < math.log(256) < high


def test_warm_up_is_shaded_and_hollow() -> None:
    axes = drawn().axes[0]
    (shade,) = axes.patches
    assert shade.get_window_extent().transformed(axes.transData.inverted()).x1 == 1.5
    (hollow,) = (line for line in axes.lines if line.get_markerfacecolor() == "white")
    assert np.asarray(hollow.get_xdata()).tolist() == [0, 1]


def test_without_warm_up_nothing_is_shaded() -> None:
    figure = drawn(warmup=0)
    assert not figure.axes[0].patches
    assert "warm-up" not in legend(figure)


def test_many_steps_have_no_markers() -> None:
    assert curve(drawn(LOSSES * 20).axes[0]).get_marker() == ""
    assert curve(drawn().axes[0]).get_marker() == "o"


def test_title_and_caption() -> None:
    figure = drawn(title="gpt2 on 2 x cpu", plan="tp1 pp2 $x$")
    assert [text.get_text() for text in figure.texts] == [
        "gpt2 on 2 x cpu",
        "tp1 pp2 $x$ · loss 5.6000 -> 4.1000 over 5 steps, 2 of them warm-up",
    ]


def test_a_single_step() -> None:
    assert caption([5.0], 0) == "loss 5.0000 -> 5.0000 over 1 step"
    assert drawn((5.0,), 0).axes[0].get_xlim() == (-0.5, 0.5)


def test_a_loss_that_is_no_number_is_told() -> None:
    lost = (5.0, math.nan, math.inf)
    assert caption(lost, 1) == (
        "loss 5.0000 -> inf over 3 steps, 1 of them warm-up, not finite from step 1 on"
    )
    low, high = drawn(lost).axes[0].get_ylim()
    assert math.isfinite(low + high)


@pytest.mark.parametrize("name", ["loss.png", "loss.svg"])
def test_the_same_losses_make_the_same_file(tmp_path: Path, name: str) -> None:
    for folder in ("a", "b"):
        drawn(path=tmp_path / folder / name)
    written = [(tmp_path / folder / name).read_bytes() for folder in ("a", "b")]
    assert written[0] == written[1]
    assert written[0].startswith(b"\x89PNG" if name.endswith("png") else b"<?xml")


def test_a_file_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cannot draw to .*loss\.gif: suffix '\.gif'; allowed"):
        drawn(path=tmp_path / "loss.gif")
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match=r"loss\.png: cannot write: "):
        drawn(path=tmp_path / "file" / "loss.png")
