"""Pictures of strategies end when the predicted rounds do, what stragglers add among them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from parsim.scenario import load_scenario
from parsim.sim import simulate
from parsim.timelines.kinds import SpanKind, Stream
from parsim.timelines.timeline import Span, Timeline

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


def timeline_of(path: Path, name: str, nodes: int = 4) -> Timeline:
    """What is drawn of four devices in so many machines that train by a strategy."""
    text = TEXT.replace("NAME", name).replace("NODES", str(nodes))
    text = text.replace("DEVICES", str(4 // nodes))
    path.write_text(text, encoding="utf-8")
    scenario = load_scenario(path)
    drawn = simulate(scenario.job, scenario.fixed_plan(), timeline=True).timeline
    assert drawn is not None
    return drawn


def alone(span: Span, spans: Sequence[Span]) -> float:
    """Seconds of a span beside which its rank computes nothing, added up piece by piece."""
    busy = [other for other in spans if other.rank == span.rank and other.stream == Stream.COMPUTE]
    beside = [min(span.end, other.end) - max(span.start, other.start) for other in busy]
    return span.duration - sum(seconds for seconds in beside if seconds > 0.0)


@pytest.mark.parametrize("name", ["gossip", "asynchronous_gossip", "local_sgd", "parameter_server"])
def test_communication_beside_compute_is_not_exposed(tmp_path: Path, name: str) -> None:
    spans = timeline_of(tmp_path / "s.yaml", name).spans
    sent = [span for span in spans if span.stream in (Stream.DP, Stream.SEND, Stream.RECV)]
    assert sent
    for span in sent:
        assert span.exposed == pytest.approx(alone(span, spans), abs=1e-9)


def test_a_picture_of_hidden_averages_has_idle_time_and_no_exposed(tmp_path: Path) -> None:
    drawn = timeline_of(tmp_path / "s.yaml", "gossip")
    averages = [span for span in drawn.spans if span.stream == Stream.DP]
    assert averages
    assert not any(span.exposed for span in averages)
    texts = [text.get_text() for text in drawn.plot().legends[0].get_texts()]
    assert "exposed communication" not in texts


def test_the_legend_of_one_process_names_every_kind_of_work(tmp_path: Path) -> None:
    drawn = timeline_of(tmp_path / "s.yaml", "data_parallel", nodes=1)
    texts = {text.get_text() for text in drawn.plot().legends[0].get_texts()}
    assert "loss of the whole batch" in texts
    assert not texts & {span.kind for span in drawn.spans}
