"""Sizes that no model has are refused before they exhaust memory."""

from __future__ import annotations

from dataclasses import replace

import pytest

from parsim.errors import ModelError
from parsim.model.reader import model_spec
from parsim.model.transformer import build_transformer


def test_a_slip_in_the_number_of_layers() -> None:
    with pytest.raises(ModelError) as caught:
        build_transformer(replace(model_spec("gpt2"), num_layers=1_000_000_000))
    assert str(caught.value) == "num_layers=1000000000 is above 100000"
