"""Fixtures of this folder."""

from __future__ import annotations

from dataclasses import replace

import pytest

from parsim.cluster.hardware import Cluster
from parsim.cluster.reader import load_catalog
from parsim.model.model import Model
from parsim.model.reader import model_spec
from parsim.model.transformer import build_transformer


@pytest.fixture(scope="module")
def model() -> Model:
    """Llama 3 8B: 32 layers, 32 heads, 8 of them for keys and values."""
    return build_transformer(replace(model_spec("llama3-8b"), seq_len=4100))


@pytest.fixture(scope="module")
def cluster() -> Cluster:
    return Cluster(system=load_catalog().system("dgx-a100"), num_nodes=2)
