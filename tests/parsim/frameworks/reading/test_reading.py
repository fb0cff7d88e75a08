"""Launch files read back: what export wrote, and what people write."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from parsim.cost.software import changed_switches, with_switches
from parsim.errors import InputError
from parsim.frameworks.export import export_plan
from parsim.frameworks.reading import read_config
from parsim.frameworks.reading.arguments import arguments_of
from parsim.model.transformer import TransformerSpec
from parsim.plan import CpCommType, Plan, Recompute
from parsim.scenario import Scenario, load_scenario
from tests.commands import GPT3, ROOT

MIXTURE = ROOT / "scenarios" / "qwen3-30b-a3b-dgx-h100.yaml"
DEGREES = ("tp", "pp", "cp", "ep", "dp", "microbatch_size", "num_microbatches", "v", "zero_stage")


KEPT = (
    *("recompute", "recompute_modules", "recompute_layers"),
    *("offload_layers", "offload_modules"),
    *("gradient_precision", "reduce_precision", "stage_layers"),
)


def read(tmp_path: Path, text: str, name: str = "train.sh", nodes: int | None = None) -> Scenario:
    file, made = tmp_path / name, tmp_path / "made.yaml"
    file.write_text(text, encoding="utf-8")
    made.write_text(read_config(file, "dgx-a100", nodes)[0], encoding="utf-8")
    return load_scenario(made)


def the_same(first: Plan, again: Plan) -> None:
    for name in (*DEGREES, "schedule", "sequence_parallel", *KEPT):
        assert getattr(again, name) == getattr(first, name), name


def test_experts_that_megatron_would_feed_otherwise(tmp_path: Path) -> None:
    """Its defaults are to gather all tokens, and a kernel for each expert."""
    scenario = load_scenario(MIXTURE)
    text = export_plan(scenario, scenario.fixed_plan(), "megatron")
    file, dispatcher = tmp_path / "train.sh", "--moe-token-dispatcher-type alltoall"
    for changed, words in (
        (text.replace(dispatcher, ""), "not given, so allgather: tokens are taken to move by"),
        (text.replace(dispatcher, dispatcher.replace("alltoall", "allgather")), "is allgather: "),
        (text.replace("--moe-grouped-gemm", ""), "no --moe-grouped-gemm: all experts of a rank"),
    ):
        file.write_text(changed, encoding="utf-8")
        assert words in "\n".join(read_config(file, "dgx-h100", 2)[1])


def test_of_a_flag_that_is_repeated_the_last_counts() -> None:
    given = arguments_of("--x 1 --y 2 --x 3 4 --z=5 --z=6")
    assert given == {"--x": ["3", "4"], "--y": ["2"], "--z": ["6"]}


def test_recomputation_of_several_layers_at_once_is_noted(tmp_path: Path) -> None:
    scenario = load_scenario(GPT3)
    plan = replace(scenario.fixed_plan(), recompute=Recompute.FULL)
    text = export_plan(scenario, plan, "megatron")
    file = tmp_path / "train.sh"
    for layers, noted in ((1, False), (4, True)):
        file.write_text(
            text.replace("--recompute-num-layers 1", f"--recompute-num-layers {layers}"),
            encoding="utf-8",
        )
        notes = "\n".join(read_config(file, "dgx-a100", None)[1])
        assert ("--recompute-num-layers 4 with --recompute-method uniform" in notes) == noted


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"zero_stage": 1, "dp_replicate": 1, "dp_shard": 16},
        {"recompute": Recompute.FULL, "schedule": "1f1b", "v": 1},
        {"recompute": Recompute.NONE, "recompute_modules": ("layernorm",)},
        {"recompute": Recompute.NONE, "recompute_layers": 2},
        {"offload_layers": 4, "offload_modules": ("core_attn", "attn_proj")},
        {"schedule": "1f1b", "v": 1, "stage_layers": (11, 13, 12, 12, 12, 12, 12, 12)},
        {"gradient_precision": "same", "reduce_precision": "same"},
        {"gradient_precision": "fp32", "reduce_precision": "fp32"},
        {"precision": "fp16", "gradient_precision": "same", "reduce_precision": "same"},
        {
            "pp": 1,
            "v": 1,
            "schedule": "1f1b",
            "num_microbatches": 12,
            "zero_stage": 3,
            "dp_replicate": 1,
            "dp_shard": 128,
            "reduce_precision": "same",
        },
    ],
)
def test_what_megatron_is_told_is_read_back(tmp_path: Path, changes: dict[str, object]) -> None:
    scenario = load_scenario(GPT3)
    alike = {"reduce_precision": "fp32", **changes}  # as gradients are summed
    plan = replace(scenario.fixed_plan(), **alike)  # type: ignore[arg-type]
    again = read(tmp_path, export_plan(scenario, plan, "megatron"), nodes=128)
    assert again.plan is not None
    the_same(plan, again.plan)
    assert again.spec.num_layers == 96
    assert again.job.model.parameters == pytest.approx(scenario.job.model.parameters, rel=1e-3)


@pytest.mark.parametrize(
    ("sizes", "tp", "flag"),
    [
        ({"vocab_size": 50257, "padded_vocab_size": 51200}, 8, None),
        ({"vocab_size": 50257, "padded_vocab_size": 50304}, 1, None),
        ({"vocab_size": 50257, "padded_vocab_size": 50304}, 8, "16"),
        ({"vocab_size": 50257, "padded_vocab_size": 50304 * 2}, 8, "12576"),
        ({"vocab_size": 128256, "padded_vocab_size": None}, 8, "32"),
    ],
)
def test_rows_of_the_vocabulary_come_back(
    tmp_path: Path, sizes: dict[str, Any], tp: int, flag: str | None
) -> None:
    scenario = load_scenario(GPT3)
    assert isinstance(scenario.model, TransformerSpec)
    padded = replace(scenario, model=replace(scenario.model, **sizes))
    text = export_plan(
        padded, replace(scenario.fixed_plan(), tp=tp, sequence_parallel=tp > 1), "megatron"
    )
    told = arguments_of(text).get("--make-vocab-size-divisible-by", [None])
    assert told == [flag]
    again = read(tmp_path, text, nodes=16 * tp).spec
    assert again.vocab_size == sizes["vocab_size"]
    assert again.vocab_rows == (sizes["padded_vocab_size"] or again.vocab_size)


def test_rows_that_megatron_would_store_otherwise() -> None:
    scenario = load_scenario(GPT3)
    assert isinstance(scenario.model, TransformerSpec)
    odd = replace(scenario, model=replace(scenario.model, vocab_size=50257, padded_vocab_size=None))
    text = export_plan(odd, scenario.fixed_plan(), "megatron")
    assert "--make-vocab-size-divisible-by" not in text
    assert "# 51200: to predict those, --set model.padded_vocab_size=51200" in text


def test_what_hides_beside_compute_is_read_back(tmp_path: Path) -> None:
    scenario = load_scenario(MIXTURE)
    switched = with_switches(
        scenario.job.software, {"expert_overlap": 1.0, "expert_dispatcher": "hybridep"}
    )
    scenario = replace(scenario, job=replace(scenario.job, software=switched))
    text = export_plan(scenario, replace(scenario.fixed_plan(), precision="bf16"), "megatron")
    assert "--overlap-moe-expert-parallel-comm" in text
    again = read(tmp_path, text, nodes=2).job.software
    assert (again.id, again.expert_dispatcher) == ("megatron-lm", "hybridep")
    assert changed_switches(again)["expert_overlap"] == 1.0


def test_gemms_wait_for_their_collectives_where_no_flag_overlaps_them(tmp_path: Path) -> None:
    assert not read(tmp_path, SCRIPT).job.software.tp_overlap
    overlapped = SCRIPT.replace("pretrain_gpt.py", "pretrain_gpt.py --tp-comm-overlap")
    assert read(tmp_path, overlapped).job.software.tp_overlap
    assert "--tp-comm-overlap" not in str(read_config(tmp_path / "train.sh", "dgx-h100", None)[1])


SCRIPT = """\
#!/bin/bash
export CUDA_DEVICE_MAX_CONNECTIONS=1   # a comment with --tensor-model-parallel-size 64
torchrun --nproc_per_node 8 --nnodes=2 pretrain_gpt.py \\
  --tensor-model-parallel-size 2 --pipeline-model-parallel-size 4 \\
  --num-layers-per-virtual-pipeline-stage 4 \\
  --num-layers 32 --hidden-size 4096 --num-attention-heads 32 --ffn-hidden-size=14336 \\
  --group-query-attention --num-query-groups 8 --swiglu --normalization RMSNorm \\
  --position-embedding-type rope --untie-embeddings-and-output-weights --vocab-size 128256 \\
  --seq-length 8192 --micro-batch-size 1 --global-batch-size 64 --bf16 \\
  --use-distributed-optimizer --sequence-parallel --lr 3e-4 --moe-aux-loss-coeff 0.1
"""


def test_a_script_as_people_write_it(tmp_path: Path) -> None:
    scenario = read(tmp_path, SCRIPT)
    assert scenario.plan is not None
    assert scenario.plan.label() == "tp2 pp4 dp2 mb1 m32 interleaved_1f1b v2 zero1 sp"
    assert scenario.job.cluster.num_nodes == 2
    assert scenario.job.model.parameters == pytest.approx(8.03e9, rel=1e-3)
    notes = read_config(tmp_path / "train.sh", "dgx-h100", None)[1]
    assert notes[0] == "not read: --moe-aux-loss-coeff"
    assert notes[1].startswith("left out, as no step depends on them: 1 flag of logging")


@pytest.mark.parametrize(
    ("change", "size", "rows"),
    [
        (" ", 50257, 50432),
        (" --make-vocab-size-divisible-by 64 ", 50257, 50304),
        (" --make-vocab-size-divisible-by 64 --padded-vocab-size 60000 ", 50257, 60000),
    ],
)
def test_megatron_pads_the_vocabulary(tmp_path: Path, change: str, size: int, rows: int) -> None:
    spec = read(tmp_path, SCRIPT.replace(" --vocab-size 128256 ", f" --vocab-size 50257{change}"))
    assert (spec.spec.vocab_size, spec.spec.vocab_rows) == (size, rows)


def test_what_megatron_takes_where_nothing_is_told(tmp_path: Path) -> None:
    text = SCRIPT.replace("--vocab-size 128256", "").replace("--ffn-hidden-size=14336", "")
    assert read(tmp_path, text).spec.ffn_hidden_size == 10880  # int(4 x 4096 x 2 / 3 / 64) x 64
    notes = read_config(tmp_path / "train.sh", "dgx-h100", None)[1]
    assert notes[0].startswith("vocab_size = 128256 is assumed")
    plain = read(tmp_path, text.replace("--swiglu", ""))
    assert (plain.spec.ffn_hidden_size, plain.spec.vocab_size) == (4 * 4096, 50257)


@pytest.mark.parametrize(
    ("flags", "precision"),
    [
        ("--bf16", "fp32"),
        ("--bf16 --grad-reduce-in-bf16", "same"),
        ("--bf16 --accumulate-allreduce-grads-in-fp32 --grad-reduce-in-bf16", "same"),
        ("--fp16", "same"),
        ("--fp16 --accumulate-allreduce-grads-in-fp32", "fp32"),
    ],
)
def test_what_gradients_are_summed_in(tmp_path: Path, flags: str, precision: str) -> None:
    plan = read(tmp_path, SCRIPT.replace("--bf16", flags)).plan
    assert plan is not None
    assert (plan.gradient_precision, plan.reduce_precision) == (precision, precision)
    assert "grad" not in str(read_config(tmp_path / "train.sh", "dgx-h100", None)[1])


def test_what_context_ranks_exchange(tmp_path: Path) -> None:
    cut = SCRIPT.replace("size 4 ", "size 2 --context-parallel-size 2 --cp-comm-type a2a ")
    cut = cut.replace("stage 4 ", "stage 8 ")
    scenario = read(tmp_path, cut)
    assert scenario.plan is not None
    assert scenario.plan.cp_comm_type is CpCommType.A2A
    assert "--cp-comm-type a2a" in export_plan(scenario, scenario.plan, "megatron")


TITAN = """\
[model]
name = "llama3"
flavor = "8B"
[training]
local_batch_size = 2
seq_len = 4096
[parallelism]
data_parallel_shard_degree = 8
tensor_parallel_degree = 2
[activation_checkpoint]
mode = "full"
"""


def test_torchtitans_toml(tmp_path: Path) -> None:
    scenario = read(tmp_path, TITAN, "train.toml", nodes=2)
    assert scenario.plan is not None
    assert scenario.plan.label() == "tp2 pp1 dp8 mb2 m1 no-pipeline zero3 sp recompute-full"
    assert scenario.job.model.tokens == 4096


@pytest.mark.parametrize(
    ("text", "name", "message"),
    [
        ("echo hello", "a.sh", "no arguments of a Megatron-LM training: no --num-layers"),
        (SCRIPT.replace("layers 32", "layers $N"), "a.sh", r"--num-layers \$N must be a whole"),
        (SCRIPT.replace("--bf16", "'--bf16"), "a.sh", "cannot read the arguments"),
        (SCRIPT.replace("size 2 ", "size 3 "), "a.sh", "tp x pp x cp = 12 does not divide the 16"),
        (SCRIPT.replace("size 2 ", "size 16 "), "a.sh", "does not divide"),
        (SCRIPT.replace("size 2 ", "size 0 "), "a.sh", "parallel-size 0 must be at least 1"),
        (SCRIPT.replace("heads 32", "heads 0"), "a.sh", "heads 0 must be at least 1"),
        (
            TITAN.replace("tensor_parallel_degree = 2", "tensor_parallel_degree = 0"),
            "a.toml",
            "tp=0",
        ),
        (TITAN.replace("8B", "9B"), "a.toml", "model 'llama3 9B' is unknown; allowed: llama3 8B"),
        (TITAN.replace("degree = 8", "degree = -1"), "a.toml", "ranks that are left.*--nodes"),
        (TITAN.replace("full", "some"), "a.toml", "activation_checkpoint.mode 'some' is unknown"),
        ("[model", "a.toml", "a.toml: "),
        ("a = " + "[" * 5000, "a.toml", "a.toml: brackets are nested too deeply"),
        ("a = " + "9" * 5000, "a.toml", "a.toml: a number is too long"),
        (TITAN.replace("seq_len = 4096", 'seq_len = "x"'), "a.toml", "must be a whole number"),
    ],
)
def test_what_is_refused(tmp_path: Path, text: str, name: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read(tmp_path, text, name)


def test_sequence_parallelism_alone_is_off_as_in_megatron(tmp_path: Path) -> None:
    alone = SCRIPT.replace("--tensor-model-parallel-size 2", "--tensor-model-parallel-size 1")
    plan = read(tmp_path, alone).plan
    assert plan is not None
    assert not plan.sequence_parallel
    notes = read_config(tmp_path / "train.sh", "dgx-h100", None)[1]
    assert notes[0].startswith("--sequence-parallel is off with --tensor-model-parallel-size 1")


def test_errors_call_things_by_the_files_words(tmp_path: Path) -> None:
    """Nobody has the scenario that they are about, so no line of it is told."""
    with pytest.raises(InputError) as caught:
        read(tmp_path, SCRIPT.replace("groups 8", "groups 3"))
    assert str(caught.value) == (
        f"{tmp_path / 'train.sh'}: model num_key_value_heads=3 does not divide "
        "num_attention_heads=32 (num_key_value_heads is --num-query-groups, num_attention_heads is "
        "--num-attention-heads)"
    )


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        read_config(tmp_path / "none.sh", "dgx-a100", None)


def test_flags_and_values() -> None:
    given = arguments_of("A=1 --x 1 2 --y=3 --z # --w\n--u")
    assert given == {"--x": ["1", "2"], "--y": ["3"], "--z": [], "--u": []}


def test_flags_in_a_shells_variables() -> None:
    """An array ends where its bracket does; quotes keep brackets and hold a list of flags."""
    given = arguments_of('A=(--x 1 2)\nB="--y ([0]*3) --z=4"\nrun ${A[@]} "$B" --w "([1]*2)"')
    assert given == {"--x": ["1", "2"], "--y": ["[0]*3"], "--z": ["4"], "--w": ["([1]*2)"]}
