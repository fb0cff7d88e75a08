"""Updates through fp32 copies, and going on from a saved state; one rank, in this process."""

from __future__ import annotations

import gc
import weakref
from typing import Any, Literal

import pytest

from parsim.plan import Plan

torch = pytest.importorskip("torch")


from executor.devices.mesh import build_mesh  # noqa: E402
from executor.model.loss import cross_entropy  # noqa: E402
from executor.model.module import build_model  # noqa: E402
from executor.parallel.data import apply_data_parallel  # noqa: E402
from executor.parallel.precision import storage_dtype  # noqa: E402
from executor.parallel.replica import Replica  # noqa: E402
from executor.training.norm import gradient_norm  # noqa: E402
from executor.training.optimizer import StageOptimizer  # noqa: E402
from executor.training.update_rule import OptimizerConfig, Rate  # noqa: E402
from executor.training.updated_values import StatePiece  # noqa: E402
from tests.executor.workers.parallel import batch  # noqa: E402
from tests.executor.workers.specs import GPT  # noqa: E402

PURE = Plan(precision="bf16", microbatch_size=2)


pytestmark = pytest.mark.usefixtures("one_rank")


def build(plan: Plan, config: OptimizerConfig) -> tuple[Replica, StageOptimizer]:
    stage = build_model(GPT, dtype=storage_dtype(plan))
    replica = apply_data_parallel(stage, plan, build_mesh(plan, "cpu"))
    return replica, StageOptimizer([replica], config)


def train(replica: Replica, optimizer: StageOptimizer, steps: int) -> None:
    for _ in range(steps):
        optimizer.zero_grad()
        replica.accumulate(*batch(replica.plan, GPT), cross_entropy)
        optimizer.step()


def weights(replica: Replica) -> list[Any]:
    return [parameter.detach().clone() for parameter in replica.stage.parameters()]


def test_updates_below_the_resolution_of_bf16_add_up() -> None:
    # weights of norms are 1, where bf16 steps by 2^-8: one update of 1e-3 is lost, 16 are not
    config = OptimizerConfig(rate=Rate(peak=1e-3), weight_decay=0.0)
    replica, optimizer = build(PURE, config)
    norm = dict(replica.stage.named_parameters())["head.norm.weight"].detach()
    train(replica, optimizer, 1)
    assert float((norm - 1).abs().max()) == 0.0
    train(replica, optimizer, 15)
    assert float((norm - 1).abs().max()) > 2**-8


def test_adamw_of_fp32_is_that_of_torch() -> None:
    plan, config = Plan(precision="fp32", microbatch_size=2), OptimizerConfig()
    replica, optimizer = build(plan, config)
    model = build_model(GPT)
    theirs = torch.optim.AdamW(
        model.parameters(), lr=6e-4, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1, fused=True
    )
    train(replica, optimizer, 2)
    for _ in range(2):
        theirs.zero_grad()
        tokens, targets = batch(plan, GPT)
        cross_entropy(model(tokens), targets).backward()
        theirs.step()
    assert all(map(torch.equal, weights(replica), model.parameters()))


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_going_on_from_a_saved_state_changes_nothing(precision: str) -> None:
    plan, config = Plan(precision=precision, microbatch_size=2), OptimizerConfig()
    through, first = build(plan, config)
    train(through, first, 2)
    states = {key(piece): piece[-1].clone() for piece in first.state_pieces()}
    values, updates = weights(through), first.updates
    assert updates == 2
    train(through, first, 2)
    again, second = build(plan, config)
    for parameter, value in zip(again.stage.parameters(), values, strict=True):
        parameter.detach().copy_(value)
    for piece in second.state_pieces():
        piece[-1].copy_(states.pop(key(piece)))
    second.updates = updates
    assert not states
    train(again, second, 2)
    assert all(map(torch.equal, weights(again), weights(through)))


def key(piece: StatePiece) -> tuple[str, str]:
    """What a state is called."""
    return piece.kind, piece.name


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("name", ["adamw", "sgd"])
def test_making_the_states_changes_no_weight(precision: str, name: Literal["adamw", "sgd"]) -> None:
    plan = Plan(precision=precision, microbatch_size=2)
    replica, optimizer = build(plan, OptimizerConfig(name=name))
    before = weights(replica)
    states = {kind for kind, *_ in optimizer.state_pieces()}
    assert all(map(torch.equal, weights(replica), before))
    assert all(parameter.grad is None for parameter in replica.stage.parameters())
    assert ("exp_avg" in states) == (name == "adamw")
    assert ("weight" in states) == (precision == "bf16")


@pytest.mark.parametrize("name", ["adamw", "sgd_momentum"])
def test_making_the_states_changes_no_update(name: Literal["adamw", "sgd_momentum"]) -> None:
    """What a checkpoint does that is written behind a skipped first step."""
    plan, config = Plan(precision="fp32", microbatch_size=2), OptimizerConfig(name=name)
    (saved, first), (never, second) = build(plan, config), build(plan, config)
    assert list(first.state_pieces())
    assert first.updates == 0
    train(saved, first, 2)
    train(never, second, 2)
    assert all(map(torch.equal, weights(saved), weights(never)))


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_norm_is_that_of_all_gradients(precision: str) -> None:
    plan = Plan(precision=precision, microbatch_size=2)
    replica, _ = build(plan, OptimizerConfig())
    replica.accumulate(*batch(plan, GPT), cross_entropy)
    gradients = [gradient.norm() for _, _, gradient in replica.gradients()]
    expected = float(torch.stack(gradients).norm())
    assert gradient_norm([replica]) == pytest.approx(expected, rel=1e-6)


def test_a_replica_that_nobody_needs_is_freed() -> None:
    replica, optimizer = build(PURE, OptimizerConfig())
    train(replica, optimizer, 1)
    reference = weakref.ref(replica.buckets)
    assert reference() is not None
    del replica, optimizer
    gc.collect()
    assert reference() is None
