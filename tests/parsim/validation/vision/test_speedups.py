"""Speed-ups over another run: which run that is, what is refused, and the published ones."""

from __future__ import annotations

from itertools import combinations

import pytest

from parsim.partition.given_replicas import cut_for
from parsim.partition.hierarchy import PartitionStage
from parsim.partition.judge import Judge
from parsim.partition.layer_graph import LayerGraph, LayerNode
from parsim.partition.levels import Level, Options
from parsim.partition.states import states_of
from parsim.validation.tables import RowSkipped, all_step_tables, read_rows, shipped_tables
from parsim.validation.validate import Validation, validate
from parsim.validation.vision.measured_samples import baseline_of, parse_samples
from parsim.validation.vision.predict_samples import predict_samples
from parsim.validation.vision.samples_case import case_of

TABLES = {path.stem: path for path in shipped_tables("strategies")}


def rows_of(table: str) -> dict[str, dict[str, str]]:
    return {row["row_id"]: row for row in read_rows(TABLES[table], lambda path, header: None)}


ROW = rows_of("pipedream_2018")["pipedream2018-0075"]


def test_the_run_that_it_is_over_is_the_row_with_other_cells() -> None:
    over = baseline_of(ROW)
    assert (over["strategy"], over["replicas"]) == ("data_parallel", "")
    case = case_of(parse_samples(over))
    job, plan = case.job, case.plan
    assert (plan.dp, plan.microbatch_size, job.cluster.num_nodes) == (8, 32, 8)
    piped = case_of(parse_samples(ROW)).plan
    assert piped.schedule == "pipedream"
    assert [stage.replicas for stage in piped.stages or ()] == [7, 1]
    assert [stage.late_update for stage in piped.stages or ()] == [True, False]
    assert piped.global_batch_size == 7 * 32


WRONG = {
    "replicas='7-2' must be numbers that sum to n_gpus=8": {"replicas": "7-2"},
    "replicas='' must be numbers": {"replicas": ""},
    "speedup_over='' must name cells": {"speedup_over": ""},
    "speedup_over='nodes=3' must name cells": {"speedup_over": "nodes=3"},
    "speedup='fast' is not a number": {"speedup": "fast"},
    "model 's2vt' is not in the catalog": {"model": "s2vt"},
    "replica_updates='soon' must be blank or one of late": {"replica_updates": "soon"},
    "12 stages need as many layers, but there are 9": {
        "model": "gnmt-8",
        "n_gpus": "12",
        "replicas": "1-1-1-1-1-1-1-1-1-1-1-1",
    },
}


@pytest.mark.parametrize("message", WRONG)
def test_what_cannot_be_predicted_says_why(message: str) -> None:
    judged = predict_samples("t", ROW | WRONG[message])
    assert message in judged.reason


def test_vgg_on_machines_of_one_v100() -> None:
    """5.12 times as fast as data parallelism over 10 Gb/s (Harlap et al. 2018, table 1)."""
    judged = predict_samples("pipedream_2018", ROW)
    assert judged.speedup_error == pytest.approx(0.0, abs=0.10)
    assert judged.to_json()["measured_speedup"] == 5.12
    table = Validation(rows=(judged,))
    assert table.summary("pipedream_2018").n == table.summary("pipedream_2018").n_skipped == 0
    assert table.speedup_summary("pipedream_2018").n == 1


@pytest.mark.parametrize("number", ["07", "09", "10"])
def test_gnmt_by_stages_beats_data_parallelism(number: str) -> None:
    """1.46, 3.14 and 1.50 times; 0.97, 1.96 and 0.92 with sentences as long as the longest."""
    judged = predict_samples("pipedream_2019", rows_of("pipedream_2019")[f"pipedream2019-{number}"])
    assert judged.speedup_error == pytest.approx(0.0, abs=0.15)


@pytest.mark.parametrize("plan", ["0072", "0073", "0074"])
def test_vgg_on_titan_x_beats_data_parallelism(plan: str) -> None:
    """2.13, 2.99 and 3.00 times, and 3.14, 7.04 and 9.86 times one machine.

    0.97, 1.74 and 0.85 if replicas waited for the sum of their gradients, as those of 2019 did.
    """
    rows = rows_of("pipedream_2018")
    over, alone = (rows[f"pipedream2018-{plan}{end}"] for end in ("", "-one"))
    assert (predict_samples("pipedream_2018", over).predicted_speedup or 0.0) > 1.3
    judged = predict_samples("pipedream_2018", alone)
    assert judged.speedup_error == pytest.approx(0.0, abs=0.15)


def test_layers_of_given_replicas_by_hand() -> None:
    """The cut of seven layers over 2 - 1 is the best of all six when each is run."""
    seconds = (5.0, 1.0, 4.0, 2.0, 3.0, 1.0, 2.0)
    layers = tuple(
        LayerNode(name=f"n{i}", description="x", seconds=each, activations=1.0, parameters=1.0)
        for i, each in enumerate(seconds)
    )
    graph = LayerGraph(layers=layers, edges=tuple((i, i + 1) for i in range(6)))
    states, levels = states_of(graph), (Level(3, 100.0),)
    judge = Judge(states, levels, Options())
    every = [
        (PartitionStage(0, cut, 2), PartitionStage(cut, 7, 1))
        for (cut,) in combinations(range(1, 7), 1)
    ]
    assert cut_for(states, levels, (2, 1)) == min(every, key=judge.seconds)


def test_without_tables_all_are_predicted() -> None:
    folders = {path.parent.name for path in all_step_tables()}
    assert folders == {"data", "vision", "strategies"}


def test_a_row_that_states_nothing_is_skipped() -> None:
    with pytest.raises(RowSkipped, match="nor speedup is stated"):
        parse_samples(ROW | {"speedup": ""})


@pytest.mark.slow
def test_published_speed_ups() -> None:
    """Over all rows: medians, those of 2019 on V100 within 15 %, and the models in order.

    Within 20 % is asked. They were 16 % in the median of 2018 and 10 % each of 2019 before V100s
    had the kernels of each cuDNN that DeepBench measured, and an NC24s v3's ring its measured rate.
    """
    rows = validate(list(TABLES.values()))
    errors = {r.row_id: r.speedup_error for r in rows.rows if r.speedup_error is not None}
    assert len(errors) == 66
    median = {name: rows.speedup_summary(name).median_abs_error or 0.0 for name in TABLES}
    assert median["pipedream_2019"] < 0.10
    assert median["deeplearningexamples_translation"] < 0.10
    assert median["pipedream_2018"] < 0.13
    assert median["gpipe_2018"] < 0.05
    assert all(abs(error) < 0.15 for name, error in errors.items() if name.startswith("gpipe"))
    assert median["horovod_2017"] < 0.06
    assert abs(errors["goyal-0079"]) < 0.05
    assert all(abs(errors[f"pipedream2019-0{number}"]) < 0.15 for number in (1, 2, 3, 4, 6))
    gains = {r.row_id: r.predicted_speedup or 0.0 for r in rows.rows if r.states_speedup}
    assert gains["pipedream2019-01"] > gains["pipedream2019-05"] > gains["pipedream2019-03"]
    assert gains["pipedream2019-02"] > gains["pipedream2019-06"] > gains["pipedream2019-04"]
