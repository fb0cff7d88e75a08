"""Variables of launch scripts, put in where the script says what they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from parsim.errors import InputError
from parsim.frameworks.reading import read_config
from parsim.frameworks.reading.shell_variables import behind_conditions, with_values
from tests.parsim.frameworks.reading.read_back import SCRIPT, read


def put_in(script: str) -> str:
    return with_values(script)[0].splitlines()[-1]


@pytest.mark.parametrize(
    ("script", "line"),
    [
        ("TP=4\n--size $TP", "--size 4"),
        ("export TP=4; PP=2\n--size ${TP}x${PP}", "--size 4x2"),
        ('TP="4"\n--size "$TP"', '--size "4"'),
        ("TP=${TP:-4}\n--size $TP", "--size 4"),
        (': "${TP:=4}"\n--size $TP', "--size 4"),
        ("--size ${1:-4}", "--size 4"),
        ("N=2\nALL=$((N * 8 + 1))\n--size $ALL", "--size 17"),
        ("N=2\n--size $(($N*(8-4)))", "--size 8"),
        ("A=$B\nB=$C\nC=3\n--size $A", "--size 3"),
    ],
)
def test_what_a_script_says_is_put_in(script: str, line: str) -> None:
    assert put_in(script) == line


@pytest.mark.parametrize(
    "script",
    [
        "--size $TP",
        "# TP=4\n--size $TP",
        "if x; then TP=4; else TP=8; fi\n--size $TP",
        "TP=$(nproc)\n--size $TP",
        "TP=$TP\n--size $TP",
        "A=$B\nB=$A\n--size $A",
        'ARGS="--swiglu --bf16"\n--size $ARGS',
        "--size $((1 / 0))",
        "--size $((2 ** 9))",
        "--size $((x))",
    ],
)
def test_what_it_does_not_say_stays(script: str) -> None:
    assert put_in(script) == script.splitlines()[-1]


def test_many_variables_behind_one_another_end_soon() -> None:
    doubled = "\n".join(f"A{n}=$A{n + 1}$A{n + 1}" for n in range(40))
    assert put_in(f"{doubled}\nA40=x\n--size $A0") == "--size $A0"


def test_what_is_fallen_back_to_is_told(tmp_path: Path) -> None:
    script = "TP=${TP:-2}\n" + SCRIPT.replace("parallel-size 2 ", "parallel-size $TP ")
    assert read(tmp_path, script).fixed_plan().tp == 2
    notes = read_config(tmp_path / "train.sh", "dgx-h100", None)[1]
    assert notes[0] == "what the script falls back to is taken: $TP = 2"


def test_keys_and_paths_are_not_told(tmp_path: Path) -> None:
    keys = "WANDB_API_KEY=${WANDB_API_KEY:-abc123}\nexport KEY=$WANDB_API_KEY\nOUT=${1:-a/b}\n"
    read(tmp_path, keys + SCRIPT + " --save $OUT --seed ${SEED:-7}")
    assert "falls back" not in " ".join(read_config(tmp_path / "train.sh", "dgx-h100", None)[1])


def test_flags_behind_conditions_are_told(tmp_path: Path) -> None:
    script = 'if [[ $X == 1 ]]; then\n  ARGS+=("--seq-length 4096" --bf16)\nfi\n'
    assert behind_conditions(script) == {"--seq-length", "--bf16"}
    assert behind_conditions("if x; then y; fi\n--bf16") == set()
    read(tmp_path, script + SCRIPT)
    notes = read_config(tmp_path / "train.sh", "dgx-h100", None)[1]
    assert "a condition of the script decides: --bf16, --seq-length" in " ".join(notes)


def test_a_script_without_a_batch_has_one_micro_batch_of_each_replica(tmp_path: Path) -> None:
    plain = SCRIPT.replace("--num-layers-per-virtual-pipeline-stage 4", "")
    scenario = read(tmp_path, plain.replace("--global-batch-size 64 ", ""))
    assert scenario.job.global_batch_size == 2
    assert "no batch is given" in " ".join(read_config(tmp_path / "train.sh", "dgx-h100", None)[1])


def test_layers_of_one_part_each(tmp_path: Path) -> None:
    hybrid = SCRIPT.replace("--num-layers 32", "--hybrid-layer-pattern M-M*-M-M").replace(
        "--num-layers-per-virtual-pipeline-stage 4 ", ""
    )
    plain = hybrid.replace("--pipeline-model-parallel-size 4 ", "").replace("--swiglu", "")
    spec = read(tmp_path, plain + " --squared-relu").spec
    assert (spec.num_layers, spec.layer_pattern, spec.mamba_heads) == (8, "M-M*-M-M", 128)


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        ("--hybrid-layer-pattern MGM", "must name up to"),
        ("--moe-latent-size 512", "makes layers that parsim does not know"),
    ],
)
def test_layers_that_nobody_describes_are_refused(tmp_path: Path, flags: str, why: str) -> None:
    with pytest.raises(InputError, match=why):
        read(tmp_path, f"{SCRIPT} {flags}")
