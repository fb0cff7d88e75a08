"""torchtitan's TOML files: which keys become what, and which are told as not read."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from parsim.errors import InputError
from parsim.frameworks.export import export_plan
from parsim.frameworks.reading.described_job import DescribedJob
from parsim.frameworks.reading.torchtitan import torchtitan_job
from parsim.scenario import load_scenario
from tests.commands import LLAMA
from tests.parsim.frameworks.reading.read_back import read
from tests.parsim.frameworks.reading.test_reading import TITAN

FLOAT8 = 'model.converters = ["quantize.linear.float8"]'
FREE = "parallelism.data_parallel_shard_degree = -1"


def text_with(*lines: str) -> str:
    """The file with lines `section.key = value`, in the stead of those with the same key."""
    sections: dict[str, dict[str, str]] = {}
    for line in TITAN.splitlines():
        if line.startswith("["):
            keys = sections.setdefault(line[1:-1], {})
        else:
            keys[line.partition(" =")[0]] = line
    for line in lines:
        section, _, rest = line.partition(".")
        sections.setdefault(section, {})[rest.partition(" =")[0]] = rest
    return "\n".join(f"[{name}]\n" + "\n".join(keys.values()) for name, keys in sections.items())


def job_of(*lines: str, devices: int | None = None) -> DescribedJob:
    return torchtitan_job(tomllib.loads(text_with(*lines)), devices)


@pytest.mark.parametrize(("nodes", "shards"), [(1, 4), (4, 16)])
@pytest.mark.parametrize("text", [text_with(FREE), TITAN.replace("data_parallel_shard", "#")])
def test_ranks_that_are_left_are_shards(tmp_path: Path, text: str, nodes: int, shards: int) -> None:
    """torchtitan's default of -1: devices over all other degrees."""
    scenario = read(tmp_path, text, "train.toml", nodes=nodes)
    plan = scenario.fixed_plan()
    assert (plan.dp_shard, plan.tp, plan.zero_stage) == (shards, 2, 3)
    assert scenario.job.global_batch_size == 2 * shards


def test_ranks_that_nothing_is_left_of() -> None:
    with pytest.raises(InputError, match="the other degrees, 6, do not divide 8 devices"):
        job_of(FREE, "parallelism.pipeline_parallel_degree = 3", devices=8)
    with pytest.raises(InputError, match="tensor_parallel_degree = 0 must be at least 1"):
        job_of(FREE, "parallelism.tensor_parallel_degree = 0", devices=8)


@pytest.mark.parametrize(
    ("lines", "compiled", "overlapped"),
    [
        ([], False, False),
        (["compile.enable = true"], True, False),
        (["training.compile = true"], True, False),
        (["compile.enable = true", 'compile.components = ["loss"]'], False, False),
        (["parallelism.enable_async_tensor_parallel = true"], False, False),
        (
            ["parallelism.enable_async_tensor_parallel = true", "compile.enable = true"],
            True,
            True,
        ),
    ],
)
def test_compile_is_off_unless_it_is_switched_on(
    tmp_path: Path, lines: list[str], compiled: bool, overlapped: bool
) -> None:
    stack = read(tmp_path, text_with(*lines), "train.toml", nodes=2).job.software
    assert (stack.id, stack.compile, stack.tp_overlap) == ("torchtitan", compiled, overlapped)


@pytest.mark.parametrize(
    ("lines", "stage", "precision"),
    [
        ([], 3, "bf16_amp"),
        (['parallelism.fsdp_reshard_after_forward = "never"'], 2, "bf16"),
        (['training.mixed_precision_param = "float32"'], 3, "fp32"),
        ([FLOAT8], 3, "fp8_amp"),
        (['model.converters = ["float8"]', 'float8.recipe_name = "rowwise"'], 3, "fp8_rowwise"),
        (['model.converters = ["quantize.linear.mx"]'], 3, "mxfp8"),
        ([FLOAT8, 'parallelism.fsdp_reshard_after_forward = "never"'], 2, "fp8"),
        (["parallelism.data_parallel_shard_degree = 1"], 0, "fp32"),
        (
            [
                "parallelism.data_parallel_shard_degree = 1",
                "parallelism.tensor_parallel_degree = 1",
            ],
            0,
            "bf16_amp",
        ),
    ],
)
def test_sharding_and_precision(lines: list[str], stage: int, precision: str) -> None:
    """Tensor parallelism without shards runs in fp32 (`maybe_enable_amp`)."""
    job = job_of(*lines)
    assert (job.plan["zero_stage"], job.precision) == (stage, precision)
    assert not any("not read" in note for note in job.notes)


def test_keys_that_may_matter_are_named() -> None:
    lines = [
        "training.enable_cpu_offload = true",
        'training.dtype = "float32"',
        "training.steps = 1000",
        "training.made_up = 1",
        "metrics.log_freq = 1",
        "experimental.custom_import = 'x'",
        "parallelism.pipeline_parallel_layers_per_stage = 4",
        "activation_checkpoint.early_stop = false",
    ]
    told = job_of(*lines).notes
    assert told[-2] == (
        "not read: experimental.custom_import, parallelism.pipeline_parallel_layers_per_stage, "
        "training.enable_cpu_offload, training.made_up"
    )
    assert told[-1].startswith("left out, as no step depends on them: 2 keys of logging")


def test_whole_layers_that_are_recomputed() -> None:
    """The default recomputes every second layer, which is another thing than half the products."""
    for lines, count in (
        (['activation_checkpoint.selective_ac_option = "op"'], 0),
        ([], 1),
    ):
        told = job_of('activation_checkpoint.mode = "selective"', *lines).notes
        assert sum("selective_ac_option" in note for note in told) == count


def test_the_default_length_is_torchtitans() -> None:
    document = tomllib.loads(TITAN.replace("seq_len = 4096", ""))
    assert torchtitan_job(document).model["seq_len"] == 2048


@pytest.mark.parametrize("policy", ["default", "never", "always"])
def test_pipelines_gather_once_a_step(policy: str) -> None:
    """torch's runtime reduces gradients once; what is gathered again, if asked for, is told."""
    job = job_of(
        "parallelism.pipeline_parallel_degree = 2",
        f'parallelism.fsdp_reshard_after_forward = "{policy}"',
    )
    assert (job.plan["zero_stage"], job.precision) == (1, "bf16")
    told = [note for note in job.notes if "fsdp_reshard_after_forward" in note]
    assert bool(told) == (policy == "always")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('compile.enable = "yes"', "compile.enable = yes must be true or false"),
        ("model.converters = 1", "model.converters = 1 must be a list"),
        ("training.max_norm = true", "training.max_norm = True must be a number of at least 0"),
        ("training.max_norm = inf", "training.max_norm = inf must be a number of at least 0"),
        ('parallelism.fsdp_reshard_after_forward = "no"', "reshard_after_forward 'no' is unknown"),
        ("quantize.linear = 1", r"\[quantize.linear\] must be a table"),
    ],
)
def test_values_of_the_wrong_kind(line: str, message: str) -> None:
    lines = [line, *([FLOAT8] if "quantize" in line else [])]
    with pytest.raises(InputError, match=message):
        job_of(*lines)


@pytest.mark.parametrize(
    "changes",
    [
        {"zero_stage": 2},
        {"zero_stage": 3},
        {"zero_stage": 1, "pp": 2, "dp_shard": 4},
        {"precision": "fp32"},
        {"zero_stage": 0},
    ],
)
def test_there_and_back(changes: dict[str, object]) -> None:
    scenario = load_scenario(LLAMA)
    plan = replace(scenario.fixed_plan(), **changes)  # type: ignore[arg-type]
    if plan.zero_stage == 0:
        plan = replace(plan, dp_replicate=8, dp_shard=1)
    again = torchtitan_job(tomllib.loads(export_plan(scenario, plan, "torchtitan-0.2")))
    assert again.plan["zero_stage"] == plan.zero_stage
    assert (again.precision == "fp32") == (plan.precision == "fp32")
