"""Pictures of strategies end when the predicted rounds do, what stragglers add among them."""

from __future__ import annotations

from pathlib import Path

import pytest

from parsim.scenario import load_scenario
from parsim.sim import simulate
from parsim.timelines.kinds import SpanKind

TEXT = """
model: {name: vgg16}
cluster: {system: dgx-1v, nodes: NODES, devices_per_node: DEVICES}
software: pytorch-ddp
training: {global_batch_size: 128, precision: fp32, optimizer: sgd_momentum}
plan: {dp: 4, microbatch_size: 32, strategy: NAME}
"""


@pytest.mark.parametrize(
    ("name", "nodes", "late"),
    [
        ("parameter_server", 4, 4),
        ("gossip", 4, 4),
        ("local_sgd", 4, 4),
        ("{name: diloco, every: 20}", 4, 4),
        ("data_parallel", 1, 4),
        ("asynchronous_gossip", 4, 0),  # workers that wait for no slower one
    ],
)
def test_the_picture_ends_with_the_predicted_rounds(
    tmp_path: Path, name: str, nodes: int, late: int
) -> None:
    text = TEXT.replace("NAME", name).replace("NODES", str(nodes))
    path = tmp_path / "s.yaml"
    path.write_text(text.replace("DEVICES", str(4 // nodes)), encoding="utf-8")
    scenario = load_scenario(path)
    prediction = simulate(scenario.job, scenario.fixed_plan(), timeline=True)
    drawn = prediction.timeline
    assert drawn is not None
    added = [span for span in drawn.spans if span.kind == SpanKind.STRAGGLER]
    assert len({span.rank for span in added}) == len(added) == late
    if late:
        assert drawn.end == pytest.approx(drawn.meta["steps"] * prediction.step_time, rel=1e-9)
