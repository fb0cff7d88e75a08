"""What recipes of dense models set and tables do not print: layers on the host, recomputation."""

from __future__ import annotations

from dataclasses import replace

import pytest

from parsim.sim.confidence.memory_fit import Fit
from parsim.sim.simulate import simulate
from parsim.validation.step.case import build_case
from parsim.validation.step.recipes import dense_recipe, offload_layers
from parsim.validation.step.row_reader import parse_row

ROW = {
    "row_id": "1",
    "stack": "megatron-bridge",
    "stack_release": "26.04",
    "system": "gb300-nvl72",
    "gpu_type": "gb300",
    "gpus_per_node": "4",
    "n_gpus": "64",
    "model": "LLAMA3_70B",
    "seq_len": "8192",
    "precision": "fp8",
    "tp": "1",
    "pp": "1",
    "dp": "64",
    "fsdp_size": "64",
    "micro_batch_size": "2",
    "n_micro_batches": "2",
    "global_batch_size": "256",
    "step_time_s": "6.25",
}


@pytest.mark.parametrize(
    ("cells", "layers"),
    [
        ({}, 20),
        ({"gpu_type": "gb200", "system": "gb200-nvl72"}, 40),
        ({"precision": "nvfp4"}, 0),
        ({"fsdp_size": "0", "zero_stage": "1"}, 0),
        ({"stack_release": "25.09"}, 0),
        ({"stack_release": ""}, 0),
        ({"model": "Llama 2 70B"}, 0),
        ({"stack": "maxtext"}, 0),
        ({"offload_layers": "7"}, 7),
        ({"offload_layers": "0"}, 0),
    ],
)
def test_what_a_row_keeps_on_the_host(cells: dict[str, str], layers: int) -> None:
    assert offload_layers(parse_row({**ROW, **cells})) == layers


def test_a_run_that_did_not_fit_without_is_no_slower_with_its_layers_on_the_host() -> None:
    case = build_case(parse_row(ROW))
    assert case.plan.offload_layers == 20
    assert any("activations of 20 layers are on the host" in note for note in case.notes)
    with_host, without = (
        simulate(case.job, replace(case.plan, offload_layers=layers)) for layers in (20, 0)
    )
    assert without.fit is Fit.TOO_LARGE
    assert with_host.fit is not Fit.TOO_LARGE
    assert with_host.step_time == without.step_time


MAXTEXT = {
    "stack": "maxtext",
    "stack_release": "25.02",
    "system": "dgx-h100",
    "gpu_type": "h100-sxm-80gb",
    "gpus_per_node": "8",
    "n_gpus": "128",
    "model": "Llama 3 70B",
    "precision": "bf16",
    "dp": "128",
    "fsdp_size": "128",
    "n_micro_batches": "1",
}


@pytest.mark.parametrize(
    ("cells", "modules"),
    [
        ({}, ("layernorm", "core_attn", "attn_proj", "mlp")),  # save_qkv_proj
        ({"stack_release": "24.11.1"}, ()),
        ({"model": "Llama 2 70B", "stack_release": "24.11.1"}, ("layernorm", "core_attn", "mlp")),
        ({"gpu_type": "h200"}, ()),
    ],
)
def test_what_a_launch_script_s_policy_repeats(
    cells: dict[str, str], modules: tuple[str, ...]
) -> None:
    assert dense_recipe(parse_row({**ROW, **MAXTEXT, **cells})).recompute == modules


def test_a_row_s_own_word_counts_more_than_the_recipe() -> None:
    row = {**ROW, **MAXTEXT}
    case = build_case(parse_row(row))
    assert case.plan.recompute_modules
    assert any("backward repeats layernorm" in note for note in case.notes)
    stated = build_case(parse_row({**row, "recompute": "full"}))
    assert stated.plan.recompute_modules == ()
    assert not any("backward repeats" in note for note in stated.notes)
