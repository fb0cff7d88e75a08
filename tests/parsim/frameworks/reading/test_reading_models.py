"""Models that Megatron-LM's arguments describe, and which flags are told as not read."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from parsim.cluster.reader import load_catalog
from parsim.errors import InputError
from parsim.frameworks.export import export_plan
from parsim.frameworks.reading import read_config
from parsim.frameworks.reading.arguments import Reader, arguments_of
from parsim.frameworks.reading.megatron import megatron_job
from parsim.frameworks.reading.megatron_stages import stages_of
from parsim.frameworks.reading.unread import unread_notes
from parsim.model.reader import model_spec
from parsim.scenario import load_scenario
from tests.commands import LLAMA
from tests.parsim.frameworks.reading.read_back import SCRIPT, read

LATENT = """\
LAUNCH=(--nproc_per_node $GPUS --nnodes $NNODES --master_addr $ADDRESS)
GPT=(
  --num-layers 61 --hidden-size 7168 --num-attention-heads 128 --ffn-hidden-size 18432 --swiglu
  --seq-length 4096 --normalization RMSNorm --norm-epsilon 1e-6 --disable-bias-linear
  --untie-embeddings-and-output-weights --position-embedding-type rope --vocab-size 129280
  --attention-dropout 0.0 --hidden-dropout 0.0 --qk-layernorm
  --multi-latent-attention --q-lora-rank 1536 --kv-lora-rank 512 --qk-head-dim 128
  --qk-pos-emb-head-dim 64 --v-head-dim 128 --moe-layer-freq "([0]*3+[1]*58)"
  --num-experts 256 --moe-router-topk 8 --moe-ffn-hidden-size 2048
  --moe-shared-expert-intermediate-size 2048 --moe-router-num-groups 8 --moe-router-group-topk 4
  --moe-router-score-function sigmoid --moe-router-enable-expert-bias
  --moe-router-topk-scaling-factor 2.5 --mtp-num-layers 1
)
PARALLEL=(
  --pipeline-model-parallel-size 16 --expert-model-parallel-size 64 --use-distributed-optimizer
  --micro-batch-size 1 --global-batch-size 15360 --bf16 --transformer-impl transformer_engine
  --account-for-loss-in-pipeline-split --overlap-grad-reduce --cuda-graph-impl local
  --use-checkpoint-args --lr 1e-4 --save-interval 100 --tensorboard-dir x --seed 1
)
torchrun ${LAUNCH[@]} pretrain_gpt.py ${GPT[@]} ${PARALLEL[@]}
"""


def test_latent_attention_dense_layers_and_predicted_tokens(tmp_path: Path) -> None:
    """DeepSeek-V3's flags make the model of the catalog."""
    scenario = read(tmp_path, LATENT, nodes=256)
    known = model_spec("deepseek-v3")
    changes = {"name": known.name, "predicted_tokens": 0}
    assert replace(scenario.spec, **changes) == known  # type: ignore[arg-type]
    assert scenario.spec.predicted_tokens == 1


@pytest.mark.parametrize("name", ["deepseek-v3", "qwen3-30b-a3b", "llama3-8b", "gpt2"])
def test_models_there_and_back(tmp_path: Path, name: str) -> None:
    """What export writes of a model is what import reads."""
    plain = load_scenario(LLAMA)
    rows = 50304 if name == "gpt2" else None  # 393 x 128; the others' divide without
    spec = replace(model_spec(name), seq_len=1024, padded_vocab_size=rows)
    scenario = replace(plain, model=spec)
    text = export_plan(scenario, replace(plain.fixed_plan(), zero_stage=3), "megatron")
    again = read(tmp_path, text, nodes=1).spec
    assert replace(again, name=spec.name) == spec


def test_a_model_without_dropout(tmp_path: Path) -> None:
    """Megatron's default is 0.1 of both kinds; angles are the model's."""
    scenario = load_scenario(LLAMA)
    text = export_plan(scenario, scenario.fixed_plan(), "megatron")
    for flag in ("--attention-dropout 0", "--hidden-dropout 0", "--rotary-base 500000"):
        assert flag in text
    with_dropout = replace(scenario, model=replace(scenario.spec, dropout=True))
    assert "dropout" not in export_plan(with_dropout, scenario.fixed_plan(), "megatron")


def test_all_flags_that_may_matter_are_named(tmp_path: Path) -> None:
    read(tmp_path, LATENT, nodes=256)
    notes = read_config(tmp_path / "train.sh", "dgx-h100", 256)[1]
    named = "--account-for-loss-in-pipeline-split, --cuda-graph-impl, --use-checkpoint-args"
    dispatcher, grouped, unread, harmless = notes
    assert dispatcher.startswith("--moe-token-dispatcher-type is not given")
    assert grouped.startswith("no --moe-grouped-gemm")
    assert unread == f"not read: {named}"
    assert harmless.startswith("left out, as no step depends on them: 5 flags of ")
    many = [f"--decisive-{number}" for number in range(100)]
    assert unread_notes(many)[0].count("--decisive") == 100


def test_describing_a_job_changes_nothing_of_it() -> None:
    job = megatron_job(SCRIPT.replace("--nnodes=2", "--nnodes $NNODES"))
    system, before = load_catalog().system("dgx-h100"), job.notes
    first = job.document(system, None, "a file")
    assert job.document(system, None, "a file") == first
    assert job.notes == before
    assert len(job.assumed(system, None)) == len(before) + 1
    assert job.assumed(system, 2) == before


def test_a_launcher_with_shell_variables(tmp_path: Path) -> None:
    """The number of nodes is said to be assumed, and errors of too few ask for it."""
    unknown = SCRIPT.replace("--nnodes=2", "--nnodes $NNODES")
    unknown = unknown.replace("--use-distributed-optimizer", "")
    read(tmp_path, unknown)
    notes = read_config(tmp_path / "train.sh", "dgx-h100", None)[1]
    assert notes[-1] == (
        "the number of nodes is not known (--nnodes $NNODES is no number): 1 x dgx-h100 assumed, "
        "as few as the plan fits; give --nodes"
    )
    assert not any("nodes" in note for note in read_config(tmp_path / "train.sh", "dgx-h100", 2)[1])
    with pytest.raises(InputError, match=r"nothing to shard .*\$NNODES is no number\): give --nod"):
        read(tmp_path, LATENT)


def test_replicas_fill_the_nodes_that_are_asked_for(tmp_path: Path) -> None:
    """A file without a launcher says nothing of devices: those of the node take part."""
    single = re.sub(r"torchrun .*pretrain_gpt.py", "", SCRIPT).replace("size 4 ", "size 1 ")
    scenario = read(tmp_path, re.sub(r"--num-layers-per\S+ 4", "", single), nodes=1)
    assert (scenario.job.cluster.num_devices, scenario.fixed_plan().dp) == (8, 4)


def test_a_launcher_without_devices_of_a_node(tmp_path: Path) -> None:
    scenario = read(tmp_path, SCRIPT.replace("--nproc_per_node 8", "--nproc_per_node $GPUS"))
    assert scenario.job.cluster.num_devices == 16
    notes = read_config(tmp_path / "train.sh", "dgx-h100", None)[1]
    assert "--nproc_per_node $GPUS is no number: all devices of a node are assumed" in notes


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("1", (0, 1)),
        ("([0]*3+[1]*58)", (3, 1)),
        ("[0]+[0]*2+[1,1]*29", (3, 1)),
        ("([0]+[1])*30+[0]", (0, 2)),
        ("([0,0]+[0,1]*29+[0])", (2, 2)),
        ("([1]*3+[0])*15+[1]", (15, 1)),
    ],
)
def test_layers_with_experts(tmp_path: Path, pattern: str, expected: tuple[int, int]) -> None:
    spec = read(tmp_path, LATENT.replace("([0]*3+[1]*58)", pattern), nodes=256).spec
    assert (spec.dense_layers, spec.expert_every) == expected
    notes = str(read_config(tmp_path / "train.sh", "dgx-h100", 256)[1])
    assert ("are taken as those with experts" in notes) == (expected == (15, 1))


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("[0]*3+[1]*57", "names 60 of --num-layers 61"),
        ("[0]*61", "leaves no layer with experts"),
        ("[1]*999999999", "names 10000 of --num-layers 61"),
        ("[1]*9999*9999", "must be a number, or a list"),
        ("__import__('os')", "must be a number, or a list"),
        ("[" * 3000, "must be a number, or a list"),
    ],
)
def test_patterns_that_are_refused(tmp_path: Path, pattern: str, message: str) -> None:
    with pytest.raises(InputError, match=f"--moe-layer-freq .*{message}"):
        read(tmp_path, LATENT.replace('"([0]*3+[1]*58)"', f'"{pattern}"'), nodes=256)


def test_what_layers_have(tmp_path: Path) -> None:
    """Dropout and biases are on in Megatron unless flags switch them off."""
    usual = read(tmp_path, SCRIPT).spec
    assert (usual.dropout, usual.mlp_bias, usual.qkv_bias, usual.rope_theta) == (
        *(True, True, True),
        10_000.0,
    )
    flags = "--attention-dropout 0 --hidden-dropout 0.0 --disable-bias-linear --add-qkv-bias"
    script = SCRIPT.replace("--bf16", f"--bf16 {flags} --rotary-base 500000 --qk-layernorm")
    spec = read(tmp_path, script).spec
    assert (spec.dropout, spec.mlp_bias, spec.qkv_bias, spec.qk_norm) == (False, False, True, True)
    assert spec.rope_theta == 500_000.0
    with pytest.raises(InputError, match=r"--hidden-dropout \$DROP must be a number"):
        read(tmp_path, script.replace("--hidden-dropout 0.0", "--hidden-dropout $DROP"))
    unclipped = read(tmp_path, script.replace("--bf16", "--bf16 --clip-grad 0"))
    assert unclipped.job.clip == 0


@pytest.mark.parametrize(
    ("flags", "pp", "expected"),
    [
        (
            "--pipeline-model-parallel-layout 'Et*3|(tt|)*2,m|L'",
            5,
            {"stage_layers": [3, 2, 2, 1, 0]},
        ),
        ("--pipeline-model-parallel-layout Ett|tt|t|tL", 2, {"v": 2, "stage_layers": [2, 2, 1, 1]}),
        ("--decoder-first-pipeline-num-layers 3", 4, {"stage_layers": [3, 3, 3, 3]}),
        ("--num-layers-in-last-pipeline-stage 6", 4, {"stage_layers": [2, 2, 2, 6]}),
        (
            "--decoder-first-pipeline-num-layers 1 --decoder-last-pipeline-num-layers 1 "
            "--mtp-num-layers 1",
            4,
            {"stage_layers": [1, 5, 5, 2]},
        ),
        ("--num-virtual-stages-per-pipeline-rank 3", 4, {"v": 3}),
        ("--num-layers-per-virtual-pipeline-stage 1", 4, {"v": 3}),
        ("", 4, {}),
        ("--pipeline-model-parallel-layout Et|tL", 1, {}),
    ],
)
def test_stages(flags: str, pp: int, expected: dict[str, object]) -> None:
    reader = Reader(arguments_of(f"--num-layers 12 {flags}"))
    assert stages_of(reader, pp) == expected


def test_ends_of_interleaved_pipelines_are_told_as_not_read() -> None:
    flags = "--num-virtual-stages-per-pipeline-rank 2 --decoder-first-pipeline-num-layers 1"
    reader = Reader(arguments_of(f"--num-layers 12 {flags}"))
    assert stages_of(reader, 4) == {"v": 2}
    assert "--decoder-first-pipeline-num-layers" not in reader.read


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Ettx|tL", "must be of E, t, m, L and"),
        ("Et|t|tL", "has 3 stages, no multiple of 2 pipeline ranks"),
        ("Et*99999|tL", "has more than 10000 layers"),
        ("Et*99999999|tL", "has more than 10000 layers"),
        ("E(t*999)*999|tL", "has more than 10000 layers"),
    ],
)
def test_layouts_that_are_refused(text: str, message: str) -> None:
    reader = Reader({"--pipeline-model-parallel-layout": [text]})
    with pytest.raises(InputError, match=message):
        stages_of(reader, 2)


def test_a_launcher_of_fewer_devices_than_a_node_has(tmp_path: Path) -> None:
    """Two trays of four in a rack of 72: those take part, and no others."""
    trays = SCRIPT.replace("--nproc_per_node 8", "--nproc_per_node 4")
    path = tmp_path / "train.sh"
    path.write_text(trays)
    path.with_suffix(".yaml").write_text(read_config(path, "gb200-nvl72", None)[0])
    assert load_scenario(path.with_suffix(".yaml")).job.cluster.num_devices == 8


def test_one_replica_shards_nothing(tmp_path: Path) -> None:
    whole = SCRIPT.replace("--nnodes=2", "--nnodes=1")
    scenario = read(tmp_path, whole)
    notes = read_config(tmp_path / "train.sh", "dgx-h100", None)[1]
    assert scenario.fixed_plan().zero_stage == 0
    assert notes[-1].startswith("one data-parallel rank holds the model")


def test_experts_are_split_as_tensors_are_where_nothing_says_otherwise(tmp_path: Path) -> None:
    mixture = SCRIPT + " --num-experts 8 --expert-model-parallel-size 2"
    assert read(tmp_path, mixture).fixed_plan().etp == 2
    assert read(tmp_path, f"{mixture} --expert-tensor-parallel-size 1").fixed_plan().etp == 1


def test_what_a_bert_has_otherwise(tmp_path: Path) -> None:
    """Megatron-LM's BERT sees both ways and has the head and pooler of its paper."""
    script = SCRIPT.replace("pretrain_gpt.py", "pretrain_bert.py").replace(
        "--vocab-size 128256", ""
    )
    spec = read(tmp_path, script.replace("--swiglu", "")).spec
    assert (spec.causal, spec.pooler, spec.head, spec.vocab_size) == (False, True, "mlm", 30522)


def test_models_of_another_kind_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="t5 is trained"):
        read(tmp_path, SCRIPT.replace("pretrain_gpt.py", "pretrain_t5.py"))


def test_an_optimizer_on_each_replica_shards_nothing(tmp_path: Path) -> None:
    scenario = read(tmp_path, f"{SCRIPT} --num-distributed-optimizer-instances 2")
    assert (scenario.fixed_plan().zero_stage, scenario.fixed_plan().dp_replicate) == (0, 2)


def test_a_script_without_learned_positions_has_no_table_of_them(tmp_path: Path) -> None:
    """`--no-position-embedding` of older scripts, mostly beside rotary embeddings."""
    learned = SCRIPT.replace("--position-embedding-type rope ", "")
    without = learned.replace("--bf16", "--bf16 --no-position-embedding")
    sizes = [read(tmp_path, text).job.model.parameters for text in (learned, without)]
    assert sizes[0] - sizes[1] == 8192 * 4096
