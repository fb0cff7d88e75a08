"""Layers through torch.compile: equal to eager ones, traced once, refused where they cannot be."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from executor.model import compiled  # noqa: E402
from executor.model.compiled import BACKENDS, check_backend  # noqa: E402
from parsim.errors import InputError  # noqa: E402
from parsim.model.transformer import build_transformer  # noqa: E402
from parsim.plan import Plan  # noqa: E402
from parsim.plan.rules.executor.runnable import uncompilable  # noqa: E402
from tests.executor.launch import launch  # noqa: E402
from tests.executor.workers.specs import SPECS  # noqa: E402

WORKER = Path(__file__).parents[1] / "workers" / "compiled.py"
CPU = torch.device("cpu")
PLAN = Plan(precision="fp32")


@pytest.mark.distributed
def test_compiled_layers_are_eager_ones(tmp_path: Path) -> None:
    """Data, sharded and pipeline parallelism, recomputation, windows, autocast."""
    every = launch(WORKER, ranks=2, folder=tmp_path, timeout=240.0)
    assert len(every[0]) == 5
    for by_rank in every:
        for name, seen in by_rank.items():
            rounding = 2e-2 if "bf16" in name else 1e-6
            assert seen["gradient"] <= rounding, (name, seen)
            assert seen["loss"] <= rounding, (name, seen)
            # one for training and one for evaluation, whatever the number of layers and steps
            assert seen["graphs"] == 2, (name, seen)
            assert seen["breaks"] == 0, (name, seen)


@pytest.mark.parametrize(
    ("model", "changes", "told"),
    [
        ("gpt", {"tp": 2}, "tp=2: collectives beside a layer's products cannot be traced"),
        ("gpt", {"cp": 2}, "cp=2: messages between context ranks cannot be traced"),
        ("mixtral", {}, "experts: how many tokens each gets changes with the step"),
        ("gpt", {"pp": 2, "schedule": "zb_h1"}, "zb_h1 splits the backward (it has 0I0)"),
        ("gpt", {"pp": 2, "schedule": "pipedream"}, "stages of their own and pipelines without"),
        ("gpt", {"pp": 2}, None),
        ("llama", {"dp_shard": 2, "zero_stage": 3}, None),
    ],
)
def test_what_is_not_compiled(model: str, changes: dict[str, Any], told: str | None) -> None:
    refused = uncompilable(replace(PLAN, **changes), build_transformer(SPECS[model]))
    if told is None:
        assert refused is None
    else:
        assert refused is not None
        assert refused.startswith(f"software.compile=true with {told}")
        assert refused.endswith("; use compile: false")


def test_a_machine_without_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "missing_compiler", lambda _: "a C++ compiler (g++)")
    with pytest.raises(InputError, match=r"needs a C\+\+ compiler \(g\+\+\), which is not there; "):
        check_backend("inductor", CPU)
    for backend in BACKENDS[1:]:
        check_backend(backend, CPU)
    with pytest.raises(InputError, match="--compile-backend='nothing' is unknown; allowed: ind"):
        check_backend("nothing", CPU)
