"""Partitions judged by runs: never worse than PipeDream's optimum by the same measure."""

from __future__ import annotations

from math import inf

import pytest

from parsim.errors import NoFeasiblePlan
from parsim.partition.hierarchy import PartitionStage, partition
from parsim.partition.judge import Judge
from parsim.partition.levels import Level, Options
from parsim.partition.result import partition_file
from parsim.partition.simulated import improved
from tests.parsim.partition.test_rows import FOLDER, ROWS, states

PROFILES = FOLDER / "profiles"
CHEAP = ("1", "2", "4", "17", "21", "28")


def options_of(row: dict[str, str]) -> tuple[list[Level], Options]:
    pairs = zip(row["units"].split(), row["bandwidth_gb_per_s"].split(), strict=True)
    levels = [Level(int(units), 1e9 * float(rate)) for units, rate in pairs]
    return levels, Options(transfers=row["transfers"] == "1")


@pytest.mark.parametrize("row", [row for row in ROWS if row["row"] in CHEAP], ids=CHEAP)
def test_no_row_is_worse_than_pipedreams_optimum(row: dict[str, str]) -> None:
    levels, options = options_of(row)
    graph = states(row["profile"])
    result, judge = improved(graph, levels, options), Judge(graph, levels, options)
    theirs = partition(graph, levels, options).stages
    assert result.seconds <= result.of_pipedream == judge.seconds(theirs)
    assert judge.bound(result.stages) <= result.seconds * (1 + 1e-9)
    assert sum(stage.replicas for stage in result.stages) == judge.devices


def test_messages_count_where_pipedreams_model_leaves_them_out() -> None:
    """VGG-16, 4 devices at 1 GB/s: the cut behind 15 states sends more than that behind 17."""
    levels, options = options_of(ROWS[0])
    result = improved(states("vgg16"), levels, options)
    assert result.gain > 1.5
    assert [stage.replicas for stage in result.stages] == [3, 1]


def test_stages_that_compute_nothing_are_merged_and_their_devices_given_away() -> None:
    """VGG-16 on 4 x 4 devices: PipeDream's published 15-1, from an optimum that has 12-3-1."""
    levels, options = options_of(next(row for row in ROWS if row["row"] == "14"))
    result = improved(states("vgg16"), levels, options)
    assert [stage.replicas for stage in result.stages] == [15, 1]
    assert result.gain > 1.25


def test_a_straight_pipeline_stays_one() -> None:
    levels, options = [Level(4, 1e9)], Options(straight=True)
    result = improved(states("alexnet"), levels, options)
    assert [stage.replicas for stage in result.stages] == [1, 1, 1, 1]


def test_one_stage_is_data_parallelism() -> None:
    """(C + 2 (r - 1) / r W / B) / r."""
    graph = states("resnet18")
    judge = Judge(graph, [Level(4, 1e9)], Options())
    compute, weights = float(graph.seconds[-1]), float(graph.parameters[-1])
    by_hand = (compute + 2.0 * 3 / 4 * weights / 1e9) / 4
    assert judge.seconds((PartitionStage(0, len(graph), 4),)) == pytest.approx(by_hand, rel=1e-12)


def test_all_versions_must_fit() -> None:
    graph, levels = states("vgg16"), [Level(4, 1e9)]
    plenty = Judge(graph, levels, Options(memory=1e12))
    stages = partition(graph, levels, Options()).stages
    assert plenty.seconds(stages) == Judge(graph, levels, Options()).seconds(stages)
    assert Judge(graph, levels, Options(memory=5e9)).seconds(stages) == inf
    with pytest.raises(NoFeasiblePlan, match="fits"):
        improved(graph, levels, Options(memory=1e6))


def test_runs_end_however_many_devices_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """Past the work that runs may take, partitions are no longer run, and the best so far stays."""
    monkeypatch.setattr("parsim.partition.judge.MOST_WORK", 3000.0)
    graph = states("alexnet")
    judge = Judge(graph, (Level(16, 1e9),), Options())
    every = [
        (PartitionStage(0, cut, 15), PartitionStage(cut, len(graph), 1)) for cut in range(1, 12)
    ]
    seconds = [judge.seconds(stages) for stages in every]
    assert seconds[0] == inf  # 16 devices take 8 x 16 micro-batches and more
    assert judge.work <= 3000.0


@pytest.mark.parametrize("bandwidth", [1e9, 1e11])
def test_data_parallelism_is_compared_with_itself_by_one_measure(bandwidth: float) -> None:
    """All devices on the whole model are data parallelism: exactly as fast as that."""
    report = partition_file(
        PROFILES / "resnet18.graph.txt", [Level(4, bandwidth)], Options(mode="parsim")
    )
    assert report.judged is not None
    judge = Judge(states("resnet18"), [Level(4, bandwidth)], Options())
    alone = judge.seconds((PartitionStage(0, len(states("resnet18")), 4),))
    assert report.best.data_parallel == alone
    assert report.over_data_parallel == alone / report.judged.seconds >= 1.0
    assert report.to_json()["data_parallel_s"] == alone
