"""Fixtures of this folder."""

from __future__ import annotations

import pytest

from parsim.guide.compare import guide
from parsim.guide.record import Guide
from parsim.scenario import load_scenario
from tests.parsim.guide.guides import RESNET, TINY


@pytest.fixture(scope="module")
def resnet() -> Guide:
    return guide(load_scenario(RESNET))


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Guide:
    file = tmp_path_factory.mktemp("tiny") / "tiny.yaml"
    file.write_text(TINY, encoding="utf-8")
    return guide(load_scenario(file))
