"""Cells to typed runs, and the exact reason for every row that is not used."""

from __future__ import annotations

from pathlib import Path

import pytest

from parsim.errors import TableError
from parsim.validation.step.row_reader import OPTIONAL, REQUIRED, parse_row
from parsim.validation.tables import RowSkipped
from parsim.validation.validate import read_table
from tests.parsim.validation.conftest import MakeRow, shipped


def reason(row: dict[str, str]) -> str:
    with pytest.raises(RowSkipped) as caught:
        parse_row(row)
    return str(caught.value)


# --------------------------------------------------------------------------- rows that are used


def test_a_row(row: MakeRow) -> None:
    run = parse_row(row())
    assert run.row_id == "megatron_sc21_table1_weak_scaling-0001"
    assert (run.stack, run.system, run.gpu_type) == ("megatron-2021", "dgx-a100", "a100-sxm-80gb")
    assert (run.n_gpus, run.gpus_per_node, run.internode_gbit) == (32, 8, 1600.0)
    assert (run.n_layers, run.hidden_size, run.n_heads, run.n_kv_heads) == (24, 2304, 24, 24)
    assert (run.ffn_hidden_size, run.seq_len, run.vocab_size) == (9216, 2048, 51200)
    assert (run.tp, run.pp, run.v, run.dp) == (1, 1, 1, 32)
    assert (run.microbatch_size, run.num_microbatches, run.global_batch_size) == (16, 1, 512)
    assert (run.precision, run.recompute, run.schedule) == ("fp16", "full", "none")
    assert (run.step_time, run.peak_memory) == (3.528, None)


def test_what_a_source_does_not_say_is_none(row: MakeRow) -> None:
    run = parse_row({name: row()[name] for name in REQUIRED})
    assert (run.precision, run.recompute, run.schedule) == (None,) * 3
    assert (run.zero_stage, run.sequence_parallel, run.flash_attention) == (None,) * 3
    assert (run.overlap, run.torch_compile, run.internode_gbit) == (None,) * 3
    assert (run.v, run.fsdp_size, run.n_kv_heads) == (1, 0, 24)


def test_how_tokens_reach_experts_and_what_these_run(row: MakeRow) -> None:
    run = parse_row(row(expert_dispatcher="hybridep", fused_experts="yes"))
    assert (run.expert_dispatcher, run.fused_experts) == ("hybridep", True)
    assert "expert_dispatcher='nccl' is unknown" in reason(row(expert_dispatcher="nccl"))


def test_switches_and_units(row: MakeRow) -> None:
    run = parse_row(
        row(
            sequence_parallel="no",
            flash_attention="yes",
            torch_compile="no",
            overlap="dp+tp+p2p",
            peak_memory_gib="1.5",
            zero_stage="0",
            vpp="0",
            n_kv_heads="8",
            task="pretrain",
        )
    )
    assert (run.sequence_parallel, run.flash_attention, run.torch_compile) == (False, True, False)
    assert run.overlap == frozenset({"dp", "tp", "p2p"})
    assert (run.peak_memory, run.zero_stage, run.v, run.n_kv_heads) == (1.5 * 2**30, 0, 1, 8)


def test_what_places_and_cuts_a_run(row: MakeRow) -> None:
    stated = {"rank_order": "dp+pp+cp+tp", "stage_layers": "0+12+12", "cuda_graphs": "yes"}
    run = parse_row(row(**stated, ddp_bucket_parameters="40000000"))
    assert run.rank_order == ("dp_replicate", "dp_shard", "pp", "cp", "tp")
    assert run.stage_layers == (0, 12, 12)
    assert (run.cuda_graphs, run.bucket_parameters) == (True, 40_000_000)
    silent = parse_row(row())
    assert (silent.rank_order, silent.stage_layers, silent.cuda_graphs) == (None,) * 3
    assert silent.bucket_parameters is None


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (
            {"rank_order": "tp-cp-ep-dp-pp"},
            "rank_order='tp-cp-ep-dp-pp' must name each axis of pp+dp+cp+tp once, outermost first",
        ),
        (
            {"rank_order": "dp+pp"},
            "rank_order='dp+pp' must name each axis of pp+dp+cp+tp once, outermost first",
        ),
        (
            {"stage_layers": "12,12"},
            "stage_layers='12,12' must be counts with + between, such as 7+8+8+7",
        ),
        (
            {"ddp_bucket_parameters": "40e6.5"},
            "ddp_bucket_parameters='40e6.5' is not a whole number",
        ),
    ],
)
def test_placements_and_cuts_of_garbage(row: MakeRow, change: dict[str, str], told: str) -> None:
    assert reason(row(**change)) == told


def test_memory_alone_is_enough(row: MakeRow) -> None:
    run = parse_row(row(step_time_s="", peak_memory_gib="40"))
    assert (run.step_time, run.peak_memory) == (None, 40 * 2**30)


# --------------------------------------------------------------------------- rows that are not

SIZES = ("n_layers", "hidden_size", "n_heads", "ffn_hidden_size")

COUNTS = (
    "gpus_per_node",
    "n_gpus",
    "seq_len",
    "tp",
    "pp",
    "dp",
    "micro_batch_size",
    "n_micro_batches",
    "global_batch_size",
)


@pytest.mark.parametrize("name", COUNTS)
def test_counts_that_are_needed(row: MakeRow, name: str) -> None:
    assert reason(row(**{name: ""})) == f"{name} is not stated"
    assert reason(row(**{name: "0"})) == f"{name}=0 must be at least 1"
    assert reason(row(**{name: "many"})) == f"{name}='many' is not a whole number"


@pytest.mark.parametrize("name", SIZES)
def test_sizes_that_no_name_tells(row: MakeRow, name: str) -> None:
    llama = {"model": "our Llama", **dict.fromkeys(SIZES, "64"), name: ""}
    told = f"{name} is not stated and not known of model 'our Llama'; write it"
    assert reason(row(**llama)).startswith(told)
    assert reason(row(**{**llama, name: "0"})) == f"{name}=0 must be at least 1"
    assert reason(row(**{**llama, name: "many"})) == f"{name}='many' is not a whole number"


@pytest.mark.parametrize("cell", ["1.5", "-3", "nan", "inf", "-inf", "1e300"])
@pytest.mark.parametrize("name", ["n_layers", "vpp", "zero_stage", "vocab_size", "cp"])
def test_whole_numbers(row: MakeRow, name: str, cell: str) -> None:
    told = reason(row(**{name: cell}))
    assert told == f"{name}={cell!r} is not a whole number from 0 to 1,000,000,000"


@pytest.mark.parametrize("cell", ["0", "-2", "nan", "inf"])
@pytest.mark.parametrize(
    "name", ["step_time_s", "peak_memory_gib", "internode_gbit_per_s_per_node"]
)
def test_measures(row: MakeRow, name: str, cell: str) -> None:
    assert reason(row(**{name: cell})) == f"{name}={cell!r} must be a number from 1e-15 to 1e+15"
    assert reason(row(**{name: "fast"})) == f"{name}='fast' is not a number"


@pytest.mark.parametrize(
    "name", ["sequence_parallel", "flash_attention", "torch_compile", "cuda_graphs"]
)
def test_flags(row: MakeRow, name: str) -> None:
    assert reason(row(**{name: "true"})) == f"{name}='true' must be yes, no or blank"


TOPK = (
    "moe_topk is not stated and not known of model 'GPT 1.7B'; write it, or a name of "
    "`parsim catalog models`"
)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"task": "dpo"}, "task 'dpo' is out of scope (only pretrain, sft and lora)"),
        ({"task": "LoRA"}, "task lora and lora_rank, the rank of the adapters, go together"),
        ({"lora_rank": "8"}, "task lora and lora_rank, the rank of the adapters, go together"),
        ({"n_experts": "8"}, TOPK),
        ({"cp": "2"}, "tp x pp x dp x cp = 64 differs from n_gpus = 32"),
        ({"ep": "4"}, "ep=4, but n_experts is not stated and 'GPT 1.7B' is not known"),
        (
            {"ep": "4", "model": "Nemotron 3 Super"},
            "of Nemotron 3 only Nano is known: the others route a projection of a token",
        ),
        (
            {"overlap": "dp+pp"},
            "overlap='pp' is unknown; allowed: none, dp, fsdp, tp, p2p, p2p_scatter_gather",
        ),
        ({"fp8_scales": "block"}, "fp8_scales='block' is unknown; allowed: delayed, current"),
        ({"stack_lacks": "zero1"}, "stack_lacks='zero1' is unknown; allowed: accumulation, zero2"),
        ({"step_time_s": ""}, "neither step_time_s nor peak_memory_gib is stated"),
    ],
)
def test_scope(row: MakeRow, changes: dict[str, str], told: str) -> None:
    assert reason(row(**changes)) == told


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"dp": "16"}, "tp x pp x dp = 16 differs from n_gpus = 32"),
        ({"n_gpus": "64"}, "tp x pp x dp = 32 differs from n_gpus = 64"),
        (
            {"global_batch_size": "256"},
            "micro_batch_size x n_micro_batches x dp = 512 differs from global_batch_size = 256",
        ),
        (
            {"n_micro_batches": "3"},
            "micro_batch_size x n_micro_batches x dp = 1536 differs from global_batch_size = 512",
        ),
        ({"n_heads": "7"}, "n_heads=7 does not divide hidden_size=2304"),
    ],
)
def test_arithmetic_that_does_not_hold(row: MakeRow, changes: dict[str, str], told: str) -> None:
    assert reason(row(**changes)) == told


# --------------------------------------------------------------------------- tables


def write(path: Path, *lines: str, encoding: str = "utf-8", end: str = "\n") -> Path:
    path.write_bytes(end.join(lines).encode(encoding))
    return path


HEADER = ",".join(REQUIRED)
CELLS = ",".join(f"c{i}" for i in range(len(REQUIRED)))


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_table_of_text_cells(tmp_path: Path, encoding: str, end: str) -> None:
    table = write(tmp_path / "t.csv", HEADER, CELLS, CELLS, encoding=encoding, end=end)
    rows = read_table(table)
    assert rows == [{name: f"c{i}" for i, name in enumerate(REQUIRED)}] * 2


def test_cells_too_many_or_too_few(tmp_path: Path) -> None:
    short, long = read_table(write(tmp_path / "t.csv", HEADER, " a , b ", CELLS + ",more,more"))
    assert (short["row_id"], short["stack"], short["system"]) == ("a", "b", "")
    assert list(long) == list(short) == list(REQUIRED)


def test_quotes_commas_and_line_ends_inside_a_cell(tmp_path: Path) -> None:
    line = CELLS.replace("c6", '"GPT, ""big""\n1.7B"')
    assert read_table(write(tmp_path / "t.csv", HEADER, line))[0]["model"] == 'GPT, "big"\n1.7B'


def test_blank_lines_are_no_rows(tmp_path: Path) -> None:
    assert len(read_table(write(tmp_path / "t.csv", HEADER, "", CELLS, "", ""))) == 1


@pytest.mark.parametrize("left_out", REQUIRED)
def test_each_column_is_required(tmp_path: Path, left_out: str) -> None:
    header = ",".join(name for name in REQUIRED if name != left_out)
    table = write(tmp_path / "t.csv", header, CELLS)
    with pytest.raises(TableError) as caught:
        read_table(table)
    assert str(caught.value) == f"{table}: columns missing: {left_out}"


def test_shipped_tables_have_just_the_columns_of_the_schema() -> None:
    rows = read_table(shipped("simumax"))
    assert set(REQUIRED) < set(rows[0]) < {*REQUIRED, *OPTIONAL}
