"""PipeDream, 2BW and stages with replicas of their own on three gloo ranks, against one process."""

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
    folder = tmp_path_factory.mktemp("stages")
    return launch(FOLDER / "stage_worker.py", ranks=3, folder=folder, timeout=120)


@pytest.mark.parametrize(("rule", "batch", "kept"), RULES)
def test_weights_are_those_of_the_replay_to_the_bit(
    ranks: list[Any], rule: str, batch: int, kept: list[int]
) -> None:
    result = [rank[f"{rule} {batch}"] for rank in ranks]
    assert all(rank["equal"] and rank["moved"] for rank in result)
    versions = Versions(rule=rule, pp=3, batch=batch)
    assert [rank["most_versions"] for rank in result] == kept
    assert kept == [versions.kept(stage) for stage in range(3)]
    for stage, rank in enumerate(result):
        assert rank["used"] == [versions.used(stage, mb) for mb in range(len(rank["used"]))]


def test_losses_are_the_last_stages_alone(ranks: list[Any]) -> None:
    lengths = [len(rank["pipedream 1"]["losses"]) for rank in ranks]
    assert lengths == [0, 0, 13]


def test_a_recomputing_stage_uses_the_weights_of_its_forward(ranks: list[Any]) -> None:
    assert all(rank["recomputed"]["equal"] for rank in ranks)
    assert ranks[2]["recomputed"]["losses"] == ranks[2]["pipedream 1"]["losses"]


def test_a_group_of_another_size_is_refused(ranks: list[Any]) -> None:
    expected = (
        "the group has 3 ranks, but the pipeline 4 stages and replicas; use one rank for each"
    )
    assert {rank["refusal"] for rank in ranks} == {expected}


@pytest.mark.parametrize("stages", ["2-1", "1-2"])
def test_gradients_of_unequal_stages_are_one_processs(ranks: list[Any], stages: str) -> None:
    result = [rank[stages] for rank in ranks]
    assert max(rank["error"] for rank in result) < 1e-6
    counts = [int(count) for count in stages.split("-")]
    shares = [list(range(n, 12, count)) for count in counts for n in range(count)]
    assert [rank["microbatches"] for rank in result] == shares


def test_replicas_of_a_stage_without_flush_have_the_weights_of_the_replay(
    ranks: list[Any],
) -> None:
    result = [rank["2-1 pipedream"] for rank in ranks]
    assert [rank["versions"] for rank in result] == [2, 2, 1]
    assert result[0]["weights"] == result[1]["weights"]
    assert result[0]["used"] == result[1]["used"] == [0, 0, 1, 2, 3, 4]
    assert all(rank["equal"] and rank["moved"] for rank in result)


@pytest.mark.parametrize(
    ("case", "counts", "late", "kept"),
    [("2-1 late", (2, 1), (1, 0), [2, 2, 1]), ("1-2 late", (1, 2), (0, 1), [3, 1, 1])],
)
def test_replicas_that_update_late_have_the_weights_of_the_replay_to_the_bit(
    ranks: list[Any], case: str, counts: tuple[int, ...], late: tuple[int, ...], kept: list[int]
) -> None:
    """They hold as many versions as without, one round staler."""
    result = [rank[case] for rank in ranks]
    assert all(rank["equal"] and rank["moved"] for rank in result)
    assert [rank["versions"] for rank in result] == kept
    versions = Versions(rule="pipedream", pp=2, counts=counts, late=late)
    for number, rank in enumerate(result):
        stage = versions.replicas.stage_of[number]
        mine = range(number - versions.replicas.ranks(stage)[0], 12, counts[stage])
        assert rank["used"] == [versions.used(stage, mb) for mb in mine]
    assert [versions.kept(versions.replicas.stage_of[rank]) for rank in range(3)] == kept
