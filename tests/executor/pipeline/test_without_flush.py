"""PipeDream and PipeDream-2BW on three gloo ranks, against a replay in one process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from parsim.schedule.versions import Versions
from tests.executor.launch import launch

FOLDER = Path(__file__).parents[1]
RULES = [
    ("pipedream", 1, [3, 2, 1]),
    ("pipedream_vertical_sync", 1, [3, 3, 3]),
    ("pipedream_2bw", 4, [2, 2, 2]),
    ("pipedream_2bw", 2, [2, 2, 2]),
]

pytestmark = pytest.mark.distributed


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    folder = tmp_path_factory.mktemp("flushless")
    return launch(FOLDER / "flushless_worker.py", ranks=3, folder=folder, timeout=120)


@pytest.mark.parametrize(("rule", "batch", "kept"), RULES)
def test_weights_are_those_of_the_replay_to_the_bit(
    ranks: list[Any], rule: str, batch: int, kept: list[int]
) -> None:
    found = [rank[f"{rule} {batch}"] for rank in ranks]
    assert all(rank["equal"] and rank["moved"] for rank in found)
    versions = Versions(rule=rule, pp=3, batch=batch)
    assert [rank["most_versions"] for rank in found] == kept
    assert kept == [versions.kept(stage) for stage in range(3)]
    for stage, rank in enumerate(found):
        assert rank["used"] == [versions.used(stage, mb) for mb in range(len(rank["used"]))]


def test_losses_are_the_last_stages_alone(ranks: list[Any]) -> None:
    lengths = [len(rank["pipedream 1"]["losses"]) for rank in ranks]
    assert lengths == [0, 0, 13]


def test_a_recomputing_stage_uses_the_weights_of_its_forward(ranks: list[Any]) -> None:
    assert all(rank["recomputed"]["equal"] for rank in ranks)
    assert ranks[2]["recomputed"]["losses"] == ranks[2]["pipedream 1"]["losses"]


def test_a_group_of_another_size_is_refused(ranks: list[Any]) -> None:
    expected = "the group has 3 ranks, but the pipeline 4 stages; use one rank for each stage"
    assert {rank["refusal"] for rank in ranks} == {expected}
