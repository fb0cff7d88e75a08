"""Many rows at once have the step times of `simulate`; effects only add what they say."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from parsim.arrays import Array
from parsim.fitting.constants.batches import batches
from parsim.fitting.constants.effects import (
    ALL,
    EFFECTS,
    NOTHING,
    OF_EXPERTS,
    OF_RECIPES,
    OF_STACKS,
    OVERLAP,
    Effect,
)
from parsim.plan import Plan
from parsim.sim import simulate
from parsim.validation.step.case import Case, build_case
from parsim.validation.step.known_models import is_mixture
from parsim.validation.step.row_reader import parse_row
from parsim.validation.validate import read_table
from tests.parsim.validation.conftest import shipped

TABLES = {
    "megatron_sc21_table1": slice(0, 10, 4),
    "korthikanti2022_step": slice(0, 3),
    "llm_foundry": slice(0, 60, 25),
    "simumax": slice(0, 12, 5),
    "nvidia_dgxc_benchmarking": slice(12, 14),
    "vtrain_single": slice(0, 60, 2),
    "vtrain_multi": slice(0, 6, 5),
}


@pytest.fixture(scope="module")
def dense() -> Rows:
    """Plans with every axis, sharding and recomputation, under six stacks."""
    rows = [row for name, some in TABLES.items() for row in read_table(shipped(name))[some]]
    usable = [row for row in rows if row["precision"] != "fp8" and not row["n_experts"]]
    return Rows([build_case(parse_row(row)) for row in usable if row["cp"] in ("", "1")])


@pytest.fixture(scope="module")
def mixtures() -> Rows:
    """One plan in nine with experts, of every model, under recipes and without."""
    rows = [row for row in read_table(shipped("megatron_bridge_performance")) if is_mixture(row)]
    timed = [row for row in rows if row["step_time_s"] and row["task"] == "pretrain"]
    return Rows([build_case(parse_row(row)) for row in timed[1::9]])


class Rows:
    """Cases in batches; their step times with each effect are computed once."""

    def __init__(self, cases: list[Case]) -> None:
        self.cases, self.batches = cases, batches(cases)
        self.known: dict[str, Array] = {}

    def step_times(self, effect: Effect = NOTHING) -> Array:
        if effect.name not in self.known:
            out = np.zeros(len(self.cases))
            for batch in self.batches:
                out[batch.indices] = batch.step_times(batch.job, effect)
            self.known[effect.name] = out
        return self.known[effect.name]


def test_step_times_are_those_of_simulate(dense: Rows) -> None:
    expected = [simulate(case.job, case.plan).step_time for case in dense.cases]
    assert dense.step_times() == pytest.approx(expected, rel=1e-12)


def test_rows_of_one_job_are_one_batch(dense: Rows) -> None:
    cases, result = dense.cases, dense.batches
    assert len(result) < len(cases)
    places = sorted(index for batch in result for index in batch.indices)
    assert places == list(range(len(cases)))
    for batch in result:
        assert all(cases[index].job == batch.job for index in batch.indices)


@pytest.mark.parametrize("effect", EFFECTS, ids=lambda effect: effect.name)
def test_switching_an_effect_off_never_slows_a_step(dense: Rows, effect: Effect) -> None:
    full, without = dense.step_times(), dense.step_times(effect)
    assert (without <= full * (1 + 1e-12)).all()
    assert (without < full * (1 - 1e-4)).any()
    assert (without > 0).all()


@pytest.mark.parametrize("effect", [*EFFECTS, *OF_EXPERTS], ids=lambda effect: effect.name)
def test_effects_of_mixtures_of_experts(mixtures: Rows, effect: Effect) -> None:
    assert (mixtures.step_times(effect) <= mixtures.step_times() * (1 + 1e-12)).all()


@pytest.mark.parametrize("effect", [*OF_EXPERTS, *OF_RECIPES], ids=lambda effect: effect.name)
def test_effects_of_mixtures_alone_change_mixtures_alone(
    dense: Rows, mixtures: Rows, effect: Effect
) -> None:
    assert (dense.step_times(effect) == dense.step_times()).all()
    assert (np.abs(mixtures.step_times(effect) / mixtures.step_times() - 1.0) > 1e-3).any()


def test_switching_overlap_off_never_speeds_a_step_up(dense: Rows) -> None:
    full, without = dense.step_times(), dense.step_times(OVERLAP)
    assert (without >= full * (1 - 1e-12)).all()
    assert (without > full * (1 + 1e-4)).any()


@pytest.mark.parametrize("effect", OF_STACKS, ids=lambda effect: effect.name)
def test_what_stacks_choose_changes_steps(dense: Rows, effect: Effect) -> None:
    assert (np.abs(dense.step_times(effect) / dense.step_times() - 1.0) > 1e-4).any()


def _on_one_rank(plan: Plan) -> Plan:
    return replace(
        plan, tp=1, pp=1, dp_replicate=1, dp_shard=1, v=1, zero_stage=0, sequence_parallel=False
    )


def test_one_device_has_no_communication(dense: Rows) -> None:
    """A plan of one rank, for a job of the table that has more."""
    alone = Rows([replace(case, plan=_on_one_rank(case.plan)) for case in dense.cases[::2]])
    full = alone.step_times()
    for effect in ALL:
        if effect.name in ("TP communication", "DP communication", "p2p", "straggler"):
            assert alone.step_times(effect) == pytest.approx(full, rel=1e-12)


def test_every_switch_says_what_it_means() -> None:
    names = [effect.name for effect in ALL]
    assert len(set(names)) == len(names) == 16
    assert all(len(effect.meaning) > 20 for effect in ALL)
