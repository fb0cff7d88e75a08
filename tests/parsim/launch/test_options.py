"""Options of a run: what is written for the ranks is what they read."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from parsim.errors import InputError
from parsim.launch.options import RunOptions, declared, read_words

EVERY = RunOptions(
    overrides=("plan.tp=2", "training.precision=bf16"),
    out=Path("some where"),
    steps=4,
    warmup=0,
    data=Path("text"),
    tokenizer=Path("tokenizer.json"),
    device="cpu",
    nnodes=2,
    rdzv_endpoint="node0:29400",
    emit="sbatch",
    seed=7,
    clip=0.5,
    optimizer="sgd",
    learning_rate=1e-3,
    lr_warmup=5,
    lr_decay="cosine",
    eval_every=2,
    timeout=12.5,
    compile_backend="aot_eager",
    verify=True,
    deterministic=True,
    oversubscribe=True,
    checkpoint_every=3,
    checkpoints=Path("saved"),
    resume=True,
    max_restarts=2,
    init_from=Path("published"),
    export=Path("trained"),
)


def test_every_option_is_given_here() -> None:
    assert all(getattr(EVERY, option.name) != option.default for option in declared())


@pytest.mark.parametrize("options", [RunOptions(), EVERY])
def test_ranks_read_what_was_written_for_them(options: RunOptions) -> None:
    for_launcher = {o.name: o.default for o in declared() if not o.flag.for_ranks}
    path, read = read_words(options.words(Path("plan.yaml")))
    assert path == Path("plan.yaml")
    assert replace(read, overrides=tuple(read.overrides)) == replace(options, **for_launcher)


def test_defaults_are_not_spelt_out_but_for_what_a_script_should_show() -> None:
    words = RunOptions().words(Path("plan.yaml"))
    shown = ["--out=build/run", "--steps=10", "--warmup=3", "--seed=0", "--timeout=300.0"]
    assert words == ["plan.yaml", *shown]


def test_what_costs_time_or_memory_is_the_scenarios() -> None:
    assert EVERY.of_scenario == ["training.clip=0.5", "training.optimizer=sgd"]
    assert not RunOptions().of_scenario


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (
            {"lr_decay": "cosin"},
            r"--lr-decay=cosin is unknown \(did you mean 'cosine'\?\); all",
        ),
        ({"learning_rate": 0.0}, "--learning-rate=0 must be above 0 and finite"),
        (
            {"timeout": 0.0},
            "--timeout=0 is no time for ranks to answer in; allowed: 1 to 10,000,000",
        ),
        ({"timeout": float("nan")}, "--timeout=nan is no time"),
        ({"timeout": float("inf")}, "--timeout=inf is no time"),
        ({"learning_rate": float("nan")}, "--learning-rate=nan must be above 0"),
    ],
)
def test_rates_that_are_none(options: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError, match=told):
        RunOptions(**options)


def test_an_endpoint_needs_a_number_of_nodes() -> None:
    with pytest.raises(InputError, match="say how many with --nnodes N"):
        RunOptions(rdzv_endpoint="node0:29400")
