"""Speed of the command line, each command a process of its own."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.benchmarks.measure import ROOT, Benchmark, process_seconds

MAIN = "scenarios/gpt3-175b-dgx-a100.yaml"

BOXES = {
    "training.global_batch_size": 2048,
    "plan.pp": 16,
    "plan.dp": 8,
    "plan.schedule": "1f1b",
    "plan.v": 1,
}
"""2048 / 8 = 256 micro-batches; 256 x 16 ranks x (F and B) = 8,192 boxes."""

RESNET = "scenarios/resnet50-dgx-1v.yaml"
GUIDES: tuple[tuple[str, dict[str, str], float], ...] = (
    (RESNET, {}, 5.0),
    (RESNET, {"software": "generic"}, 7.0),
    ("scenarios/bert-large-dgx-1v.yaml", {}, 5.0),
)
"""Scenario, what is set otherwise, and the seconds that its guide may take as a process."""


def draw() -> float:
    """Simulate and draw a timeline of 8,192 boxes, start of Python included."""
    changes = settings(BOXES)
    with tempfile.TemporaryDirectory() as folder:
        picture = Path(folder) / "timeline.png"
        return process_seconds("timeline", MAIN, "-o", str(picture), *changes)


def simulate(scenario: str) -> float:
    """Predict a scenario's plan."""
    return process_seconds("simulate", scenario)


def settings(values: Mapping[str, object]) -> list[str]:
    """The words of a command that set fields of a scenario."""
    return [word for key, value in values.items() for word in ("--set", f"{key}={value}")]


def commands() -> Iterator[Benchmark]:
    """All rows of this file."""
    yield Benchmark(
        name="parsim --help", demand=0.3, unit="s", measure=lambda: process_seconds("--help")
    )
    for path in sorted((ROOT / "scenarios").glob("*.yaml")):
        scenario = path.relative_to(ROOT).as_posix()
        yield Benchmark(
            name=f"parsim simulate {scenario}",
            demand=2.0,
            unit="s",
            measure=lambda scenario=scenario: simulate(scenario),  # type: ignore[misc]
        )
    for scenario, values, demand in GUIDES:
        words = settings(values)
        yield Benchmark(
            name=" ".join(("parsim guide", scenario, *words)),
            demand=demand,
            unit="s",
            measure=lambda scenario=scenario, words=words: process_seconds(  # type: ignore[misc]
                "guide", scenario, *words
            ),
        )
    yield Benchmark(name="parsim timeline, 8,192 boxes to PNG", demand=3.0, unit="s", measure=draw)
