"""Every kernel that a family's layers are priced with can be timed."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from executor.calibration.cases.workloads import Workload, kernel_cases  # noqa: E402
from executor.calibration.choice.layer_tasks import parts_of  # noqa: E402
from executor.calibration.timing.operators import Operators  # noqa: E402
from parsim.cost.software import software  # noqa: E402
from parsim.plan import Plan  # noqa: E402
from tests.executor.tiny import tiny  # noqa: E402

EXECUTOR = software("executor-cpu")
ADAPTED = {"copied_backward", "summed_forward", "summed_backward"}
NAMES = ("gemma2-27b", "granite-3.1-8b", "bloom", "gpt-neox-20b", "opt-1.3b", "glm4-9b")


@pytest.mark.parametrize("name", NAMES)
def test_every_kernel_of_a_family_is_timed(name: str) -> None:
    turning = {"rope_head_dim": 4} if name in ("gpt-neox-20b", "glm4-9b") else {}
    workload = Workload(spec=tiny(name, **turning), plan=Plan(precision="fp32"))
    operators = Operators(torch.device("cpu"), torch.float32)
    cases = list(kernel_cases(workload, EXECUTOR))
    for case in cases:
        operators.build(case)()()
    kinds = {case.kind for case in cases}
    assert ("scale_forward" in kinds) == (name in ("gemma2-27b", "granite-3.1-8b"))
    assert ("cap_backward" in kinds) == (name == "gemma2-27b")
    assert ADAPTED.isdisjoint(kinds)
    # torch's kernel says nothing of scores that are capped or fall with distance
    assert ("attention_forward" in kinds) == (name not in ("gemma2-27b", "bloom"))


@pytest.mark.parametrize("targets", [(), ("linear_qkv",)])
def test_every_kernel_beside_frozen_weights_is_timed(targets: tuple[str, ...]) -> None:
    spec = tiny("llama3-8b", lora_rank=4, lora_targets=targets)
    operators = Operators(torch.device("cpu"), torch.float32)
    cases = list(kernel_cases(Workload(spec=spec, plan=Plan(precision="fp32")), EXECUTOR))
    for case in cases:
        operators.build(case)()()
    assert {case.kind for case in cases} >= ADAPTED
    assert all(case.shape.get("bytes", 1.0) > 0.0 for case in cases)


def test_a_frozen_embedding_is_no_part_that_goes_backward() -> None:
    plain, adapted = (
        Workload(spec=tiny("llama3-8b", lora_rank=rank), plan=Plan()) for rank in (0, 4)
    )
    assert list(parts_of(plain, sharded=True)) == ["block", "embedding", "head", "sharded"]
    assert list(parts_of(adapted, sharded=True)) == ["block", "head", "sharded"]
