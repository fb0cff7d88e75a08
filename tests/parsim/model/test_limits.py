"""Sizes that no model has are refused before they exhaust memory."""

from __future__ import annotations

from dataclasses import replace

import pytest

from parsim.errors import ModelError
from parsim.model.reader import model_spec
from parsim.model.transformer import build_transformer


@pytest.mark.parametrize("layers", [100_000, 1_000_000_000])
def test_a_slip_in_the_number_of_layers(layers: int) -> None:
    with pytest.raises(ModelError) as caught:
        build_transformer(replace(model_spec("gpt2"), num_layers=layers))
    assert str(caught.value) == f"num_layers={layers} is above 10000"
