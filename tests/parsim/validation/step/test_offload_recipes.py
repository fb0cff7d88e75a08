"""Layers on the host that recipes set and tables do not print."""

from __future__ import annotations

from dataclasses import replace

import pytest

from parsim.sim.confidence.memory_fit import Fit
from parsim.sim.simulate import simulate
from parsim.validation.step.case import build_case
from parsim.validation.step.measured_run import parse_row
from parsim.validation.step.recipes import offload_layers

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
