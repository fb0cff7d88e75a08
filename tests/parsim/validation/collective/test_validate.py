"""Measured collectives against predictions: whole tables, counted rows, and tables that are wrong.

The limits are those that no change may break; reports/collectives.md has every figure.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from parsim.errors import TableError
from parsim.validation.collective.measured_collective import parse_collective, read_collectives
from parsim.validation.collective.validate import (
    ALL,
    CALIBRATED,
    FLAGGED,
    LARGE,
    UNCALIBRATED,
    CollectiveSummary,
    CollectiveValidation,
    predict_collective,
    validate_collectives,
)
from parsim.validation.tables import shipped_tables

Row = dict[str, str]
MakeRow = Callable[..., Row]


@pytest.fixture(scope="module")
def validation() -> CollectiveValidation:
    return validate_collectives(shipped_tables("collectives"))


@pytest.fixture
def row() -> MakeRow:
    """The 64 MiB row of 8 H100, with changes."""
    rows = read_collectives(shipped_tables("collectives")[0])
    first = next(x for x in rows if x["message_bytes"] == "67108864")

    def make(**changes: str) -> Row:
        assert not set(changes) - set(first)
        return {**first, **changes}

    return make


def large(validation: CollectiveValidation, mode: str, scope: str) -> CollectiveSummary:
    return validation.summary(mode, scope, LARGE)


def test_every_row_is_counted(validation: CollectiveValidation) -> None:
    """11 rows state no size, 20 no GPU; flagged rows are told apart."""
    assert len(validation.rows) == 572
    assert sum(bool(row.reason) for row in validation.rows) == 31
    assert validation.summary(UNCALIBRATED, ALL, ALL).errors.n == 541
    assert validation.summary(UNCALIBRATED, FLAGGED, ALL).errors.n == 145
    parts = [validation.summary(UNCALIBRATED, scope, ALL).errors.n for scope in validation.scopes]
    assert sum(parts[:-1]) == parts[-1] == 541


@pytest.mark.parametrize(
    ("mode", "scope", "points", "median"),
    [
        (CALIBRATED, ALL, 224, 0.04),
        (CALIBRATED, "NVLink domain", 146, 0.04),
        (CALIBRATED, "across nodes", 58, 0.03),
        (UNCALIBRATED, "NVLink domain", 166, 0.05),
        (UNCALIBRATED, "across nodes", 58, 0.10),
        (UNCALIBRATED, "PCIe", 17, 0.12),
        (UNCALIBRATED, "send/recv, NVLink domain", 16, 0.10),
    ],
)
def test_messages_of_a_mebibyte_and_more(
    validation: CollectiveValidation, mode: str, scope: str, points: int, median: float
) -> None:
    errors = large(validation, mode, scope).errors
    assert errors.n == points
    assert errors.median_abs_error is not None
    assert errors.median_abs_error <= median


@pytest.mark.parametrize("mode", [CALIBRATED, UNCALIBRATED])
@pytest.mark.parametrize("size", ["< 64 KiB", "64 KiB to 1 MiB", "1 to 64 MiB", "> 64 MiB"])
def test_intervals_hold_what_they_promise(
    validation: CollectiveValidation, mode: str, size: str
) -> None:
    """Eight of ten measured times lie in the 80 % interval, small messages' too."""
    coverage = validation.summary(mode, "NVLink domain", size).coverage
    assert coverage is not None
    assert 0.75 <= coverage <= 0.97


def test_the_document_holds_what_the_text_tells(validation: CollectiveValidation) -> None:
    document = json.loads(json.dumps(validation.to_json()))
    assert document["schema_version"] == 1
    assert len(document["rows"]) == 572
    (entry,) = [
        x
        for x in document["summary"]
        if (x["mode"], x["place"], x["size_class"]) == (CALIBRATED, "across nodes", LARGE)
    ]
    expected = large(validation, CALIBRATED, "across nodes")
    assert entry["median_abs_error"] == expected.errors.median_abs_error
    assert entry["coverage_80"] == expected.coverage
    skipped = [x for x in document["rows"] if x["status"] == "skipped"]
    assert {x["reason"] for x in skipped} == {
        "message_bytes is not stated",
        "GPU '(not stated)' is in no system of the catalog",
    }
    assert all(x["calibrated_s"] is x["uncalibrated_s"] is None for x in skipped)


def test_one_mode_alone() -> None:
    validation = validate_collectives(shipped_tables("collectives"), modes=(UNCALIBRATED,))
    assert {summary.mode for summary in validation.summaries()} == {UNCALIBRATED}


def test_a_bandwidth_of_zero_is_a_rounded_one(row: MakeRow) -> None:
    timed = parse_collective(row(busbw_gb_per_s="0", algbw_gb_per_s="0.00"))
    assert timed.seconds == pytest.approx(324.7e-6)
    with_rate = parse_collective(row(time_us="", busbw_gb_per_s="361.67"))
    assert with_rate.seconds == pytest.approx(324.7e-6, rel=1e-3)
    only_algbw = parse_collective(row(time_us="", busbw_gb_per_s="0.00", algbw_gb_per_s="206.67"))
    assert only_algbw.seconds == pytest.approx(324.7e-6, rel=1e-3)


@pytest.mark.parametrize(
    ("changes", "system", "nodes", "node_bandwidth"),
    [
        ({"gpu_type": "H200", "n_nodes": "2"}, "hgx-h200", 2, 400e9),
        ({"gpu_type": "NVIDIA H100 80GB HBM3"}, "dgx-h100", 1, 400e9),
        (
            {"gpu_type": "B200", "n_nodes": "4", "inter_node_interconnect": "8x 50 GB/s EFA v4"},
            "dgx-b200",
            4,
            400e9,
        ),
        (
            {
                "gpu_type": "A100-SXM4-40GB",
                "n_nodes": "3",
                "inter_node_interconnect": "4x HDR InfiniBand (200 Gb/s each) per node",
            },
            "dgx-a100",
            3,
            100e9,
        ),
        (
            {"gpu_type": "H100", "n_nodes": "2", "inter_node_interconnect": "8x 100 Gb/s RoCE"},
            "dgx-h100",
            2,
            100e9,
        ),
        (
            {
                "gpu_type": "GB200",
                "n_nodes": "2",
                "gpus_per_node": "4",
                "inter_node_interconnect": "multi-node NVLink",
            },
            "gb200-nvl72",
            1,
            3600e9,
        ),
        ({"gpu_type": "GB200", "n_nodes": "36", "gpus_per_node": "4"}, "gb200-nvl72", 2, 3600e9),
        ({"system": "gcp-a4", "gpu_type": "B200", "n_nodes": "2"}, "gcp-a4", 2, 400e9),
        ({"gpu_type": "A100 PCIe"}, "a100-pcie-node", 1, 25e9),
    ],
)
def test_which_system_a_row_ran_on(
    row: MakeRow, changes: Row, system: str, nodes: int, node_bandwidth: float
) -> None:
    timed = parse_collective(row(**changes))
    assert timed.system.id == system
    assert timed.where.nodes[0] == nodes
    assert timed.system.network is not None
    assert timed.system.network.node_bandwidth == pytest.approx(node_bandwidth)


def test_assumptions_are_told(row: MakeRow) -> None:
    timed = predict_collective("t", row(gpu_type="H200", n_nodes="2"))
    assert timed.notes == (
        "system '', GPU 'H200': taken as hgx-h200",
        "network of hgx-h200: the row states no rate",
    )
    half = parse_collective(row(gpu_type="H800"))
    assert half.system.intra.bandwidth == 200e9


def test_a_call_of_torch_costs_more_than_one_of_nccl_tests(row: MakeRow) -> None:
    calls = [predict_collective("t", row(tool=tool)) for tool in ("nccl-tests", "bench.py (torch)")]
    both = [call.uncalibrated.seconds for call in calls if call.uncalibrated]
    assert both[1] - both[0] == pytest.approx(16e-6)


def test_a_forced_algorithm_is_predicted_as_such(row: MakeRow) -> None:
    free, ring, odd = (
        predict_collective("t", row(algorithm=word)).uncalibrated for word in ("", "Ring", "Magic")
    )
    assert free is not None
    assert ring is not None
    assert ring.seconds > 1.1 * free.seconds
    assert odd == free


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"message_bytes": ""}, "message_bytes is not stated"),
        ({"message_bytes": "big"}, "message_bytes='big' is not a number"),
        (
            {"message_bytes": "-1"},
            "message_bytes='-1' must be a number from 1e-15 to 1e+15",
        ),
        ({"time_us": "nan"}, "time_us='nan' must be a number from 1e-15 to 1e+15"),
        ({"n_nodes": ""}, "n_nodes is not stated"),
        ({"n_nodes": "1.5"}, "n_nodes='1.5' is not a whole number"),
        ({"gpus_per_node": "1"}, "a group of one GPU exchanges nothing"),
        ({"collective": "all_sum"}, "collective='all_sum' is unknown; allowed: all_reduce"),
        ({"gpu_type": "TPU v5"}, "GPU 'TPU v5' is in no system of the catalog"),
        ({"gpu_type": ""}, "gpu_type is not stated"),
        ({"gpu_type": "H100 PCIe"}, "GPU 'H100 PCIe' is in no system of the catalog"),
        ({"system": "cpu", "n_nodes": "2"}, "system cpu has no network for 2 nodes"),
        ({"time_us": "", "busbw_gb_per_s": "", "algbw_gb_per_s": ""}, "none of time_us, busbw"),
    ],
)
def test_rows_that_cannot_be_predicted_say_why(row: MakeRow, changes: Row, reason: str) -> None:
    predicted = predict_collective("t", row(**changes))
    assert reason in predicted.reason
    assert predicted.calibrated is None is predicted.uncalibrated


def test_constants_of_another_simulator_are_no_measurement(tmp_path: Path) -> None:
    path = tmp_path / "fits.csv"
    path.write_text("row_id,gpu_type,network,collective,parameters\na,B200,intra,all_reduce,{}\n")
    (predicted,) = validate_collectives([path]).rows
    assert predicted.reason == "holds constants of another simulator, no measured times"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "empty file; expected a header with row_id, gpu_type"),
        ("row_id,gpu_type\n1,2\n", "columns missing: n_nodes, gpus_per_node, collective, message"),
        (
            "row_id,gpu_type,n_nodes,gpus_per_node,collective,message_bytes\n1,2,3,4,5,6\n",
            "needs at least one of the columns time_us, busbw_gb_per_s, algbw_gb_per_s",
        ),
        (
            "row_id,gpu_type,n_nodes,gpus_per_node,collective,message_bytes,time_us\n",
            "no rows below the header",
        ),
    ],
)
def test_tables_that_cannot_be_read(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "t.csv"
    path.write_text(text)
    with pytest.raises(TableError) as error:
        read_collectives(path)
    assert str(error.value).startswith(f"{path}: ")
    assert message in str(error.value)


def test_a_missing_or_binary_table(tmp_path: Path) -> None:
    with pytest.raises(TableError, match=r"no such file"):
        read_collectives(tmp_path / "none.csv")
    (tmp_path / "b.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(TableError, match="not UTF-8 text"):
        read_collectives(tmp_path / "b.csv")
