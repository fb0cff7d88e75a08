"""Launch files as people write them."""

from __future__ import annotations

from pathlib import Path

import pytest

from parsim.errors import InputError
from parsim.frameworks.export import export_plan
from parsim.frameworks.reading import read_config
from parsim.frameworks.reading.arguments import arguments_of
from parsim.plan import CpCommType
from tests.parsim.frameworks.reading.read_back import SCRIPT, read


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
    ("flags", "tokens"),
    [("--merge-file merges.txt", 50257), ("--tokenizer-type Llama2Tokenizer", 32000)],
)
def test_tokens_of_a_tokenizer_that_is_told(tmp_path: Path, flags: str, tokens: int) -> None:
    text = SCRIPT.replace("--vocab-size 128256", flags)
    assert read(tmp_path, text).spec.vocab_size == tokens


@pytest.mark.parametrize(
    ("flags", "fused"),
    [
        ("", True),
        ("--transformer-impl local", False),
        ("--transformer-impl local --use-flash-attn", True),
        ("--attention-backend unfused", False),
    ],
)
def test_whose_attention_keeps_its_scores(tmp_path: Path, flags: str, *, fused: bool) -> None:
    """Megatron's own modules multiply, mask and take the softmax apart."""
    assert read(tmp_path, SCRIPT.replace("--bf16", f"--bf16 {flags}")).spec.fused_attention == fused


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


@pytest.mark.parametrize(
    ("share", "on_host", "noted"), [("", True, False), ("0.5", True, True), ("0.0", False, False)]
)
def test_whose_optimizer_is_on_the_host(
    tmp_path: Path, share: str, *, on_host: bool, noted: bool
) -> None:
    fraction = f" --optimizer-offload-fraction {share}" if share else ""
    host = f"--optimizer-cpu-offload --use-precision-aware-optimizer{fraction} --bf16"
    plan = read(tmp_path, SCRIPT.replace("--bf16", host)).plan
    assert plan is not None
    assert plan.optimizer_offload is on_host
    notes = read_config(tmp_path / "train.sh", "dgx-a100", None)[1]
    assert (
        any(note.startswith("--optimizer-offload-fraction 0.5 is read") for note in notes) is noted
    )
    assert notes[noted] == "not read: --moe-aux-loss-coeff"


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
