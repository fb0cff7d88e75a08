"""Pictures of strategies end when the predicted rounds do, what stragglers add among them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
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


def timeline_of(path: Path, name: str, nodes: int = 4, devices: int = 4) -> Timeline:
    """What is drawn of devices in so many machines that train by a strategy."""
    text = TEXT.replace("NAME", name).replace("NODES", str(nodes))
    text = text.replace("DEVICES", str(devices // nodes)).replace("dp: 4", f"dp: {devices}")
    text = text.replace("128", str(32 * devices))
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


@pytest.mark.parametrize("name", ["parameter_server", "asynchronous_server"])
@pytest.mark.parametrize("workers", [2, 15])  # queues one by one, and in spans
def test_rows_of_servers_have_every_update(tmp_path: Path, name: str, workers: int) -> None:
    drawn = timeline_of(tmp_path / "s.yaml", name, nodes=workers, devices=workers)
    rows = list(drawn.meta["rank_labels"].values())
    assert rows[workers:] == [f"server {number}" for number in range(workers)]
    updates = [span for span in drawn.spans if span.kind == SpanKind.OPTIMIZER]
    each = 1 if name == "parameter_server" else workers * drawn.meta["steps"]
    for rank in range(workers, 2 * workers):
        assert sum(span.rank == rank for span in updates) == each
        assert {span.stream for span in updates if span.rank == rank} == {Stream.COMPUTE}


def test_a_server_adds_one_gradient_after_another_and_hands_weights_out(tmp_path: Path) -> None:
    drawn = timeline_of(tmp_path / "s.yaml", "{name: parameter_server, servers: 1}")
    for kind, stream in ((SpanKind.PUSH, Stream.RECV), (SpanKind.PULL, Stream.SEND)):
        at_server = [span for span in drawn.spans if span.rank == 4 and span.kind == kind]
        assert len(at_server) == 4
        assert {span.stream for span in at_server} == {stream}
        assert all(a.end <= b.start + 1e-12 for a, b in pairwise(at_server))


def test_what_servers_get_and_give_has_looks_of_its_own(tmp_path: Path) -> None:
    drawn = timeline_of(tmp_path / "s.yaml", "asynchronous_server")
    texts = {text.get_text() for text in drawn.plot().legends[0].get_texts()}
    assert {"gradients to servers", "weights from servers", "optimizer"} <= texts
