"""Steps of each family of models on a GPU that is none: what would fail there in its first second.

Operands on two devices, a dtype that a product refuses, a branch that only a GPU takes.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from tests.executor.fake_gpu import COMPILER
from tests.executor.launch import launch
from tests.executor.workers.fake_gpu import CASES

WORKER = Path(__file__).parents[1] / "workers" / "fake_gpu.py"
SLIP = "slip: bloom in bf16"
SHORT = (
    "gemma2 with adapters in bf16_amp",
    "bloom, tensor and sequence parallel",
    "llama with adapters, tensor and sequence parallel",
    "llama, optimizer on the host, AMP",
    "resnet18 in bf16",
)

pytestmark = pytest.mark.skipif(COMPILER is None, reason="no compiler for the guard of a device")


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """How cases ended, by name; all that one asks for are run by one process."""

    @cache
    def run(*names: str) -> dict[str, str]:
        folder = tmp_path_factory.mktemp("steps")
        [ends] = launch(WORKER, *names, ranks=1, folder=folder, timeout=600.0)
        return dict(ends)

    return run


@pytest.mark.parametrize("name", SHORT)
def test_a_step_asks_nothing_that_a_gpu_refuses(name: str, ended: Any) -> None:
    assert ended(*SHORT, SLIP)[name] == "done"


def test_a_tensor_that_was_left_on_the_host_is_noticed(ended: Any) -> None:
    end = ended(*SHORT, SLIP)[SLIP]
    assert re.search(r"two (different )?devices,? cpu(, | and )cuda:0", end)  # by torch's release
    assert "shaped.py" in end


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in CASES if name not in SHORT])
def test_steps_of_all_families_do_neither(name: str, ended: Any) -> None:
    assert ended(*CASES)[name] == "done"
