"""Fixtures of this folder."""

from __future__ import annotations

import pytest

from parsim.scenario import Scenario, load_scenario
from tests.commands import GPT3, LLAMA


@pytest.fixture(scope="module")
def gpt3() -> Scenario:
    return load_scenario(GPT3)


@pytest.fixture(scope="module")
def llama() -> Scenario:
    return load_scenario(LLAMA)
