"""One scenario on shared links with changes: how much slower it gets and which link is full."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from parsim.report.text.contention import bottleneck_text, slower_text
from parsim.report.text.tables import numbers
from parsim.scenario import Scenario, load_scenario
from parsim.scenario.beside import shared_jobs
from parsim.sim.contention.contention import Contention, simulate_contention
from parsim.sim.contention.jobs_together import jobs_together
from parsim.units import format_seconds

SCENARIO = "scenarios/llama2-7b-shared-fabric.yaml"
QUIET = {"background": "null"}
HEAD = ("what if", "step", "slower", "bottleneck")

Row = Sequence[str]


def what_ifs() -> Iterator[Row]:
    """The scenario with changes: step, slower than unchanged by, and the link that is full."""
    plain = run()
    yield what_if("unchanged", plain, plain)
    spine = {"cluster.network.nodes_per_leaf": "2", "cluster.network.oversubscription": "16"}
    yield what_if("two nodes a leaf, spine oversubscribed 16 times", run(spine), plain)
    yield what_if("interface nic:0.3 failed", run({"cluster.failed": "[nic:0.3]"}), plain)
    yield what_if("rank 3 computes 1.2 times as long", run(slow={3: 1.2}), plain)
    scenario = load_scenario(SCENARIO)
    beside = simulate_contention(
        scenario.job, scenario.fixed_plan(), background=scenario.background
    )
    yield what_if("checkpoints and batches of the scenario", beside, plain)
    yield from two_jobs(load_scenario(SCENARIO, QUIET))


def run(changes: dict[str, str] | None = None, slow: dict[int, float] | None = None) -> Contention:
    """The scenario without background, changed."""
    scenario = load_scenario(SCENARIO, {**QUIET, **(changes or {})})
    return simulate_contention(scenario.job, scenario.fixed_plan(), slow=slow)


def what_if(name: str, changed: Contention, plain: Contention) -> Row:
    """One line of the table."""
    more = 100.0 * (changed.step_time / plain.step_time - 1.0)
    return (
        name,
        format_seconds(changed.step_time),
        f"{more:+.2f} %",
        bottleneck_text(changed.bottleneck),
    )


def two_jobs(scenario: Scenario) -> Iterator[Row]:
    """The scenario twice, side by side and with nodes in turn."""
    for nodes in ([(0, 1, 2, 3), (4, 5, 6, 7)], [(0, 2, 4, 6), (1, 3, 5, 7)]):
        jobs, system = shared_jobs([(scenario, nodes[0]), (scenario, nodes[1])])
        together = jobs_together(jobs, system)
        first = together.jobs[0]
        lists = " and ".join(numbers(group, ",") for group in nodes)
        name = f"the same job beside it, on nodes {lists}"
        link = "no link is shared"
        if together.shared_links:
            link = f"{bottleneck_text(together.bottleneck)}, of {format_seconds(together.seconds)}"
        yield name, format_seconds(first.together), slower_text(first.slowdown), link
