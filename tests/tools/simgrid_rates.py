"""Rates that SimGrid gives static flows: `python -m tests.tools.simgrid_rates FLOWS > FILE.json`.

Runs where SimGrid's Python module is installed; see reports/decisions/0010-fluid-flows.md. All
flows start at once with the same latency of 1 s; what has left each of them 1 s later is its rate.
"""

from __future__ import annotations

import json
import sys

from simgrid import (  # type: ignore[import-not-found]
    Actor,
    Comm,
    Engine,
    LinkInRoute,
    NetZone,
    this_actor,
)

from parsim.fitting.reports.rail_tree import CASES, capacities, paths

SETTINGS = (
    "network/model:CM02",
    "network/optim:Full",
    "network/crosstraffic:0",
    "network/TCP-gamma:0",
    "network/weight-S:0",
    "network/bandwidth-factor:1",
    "network/latency-factor:1",
    "network/loopback-bw:1e12",
)
SIZE, LATENCY = 10**12, 1.0
"""Bytes of each flow, more than any sends in a second; seconds."""


def main() -> None:
    """One case a process, because an engine cannot be made twice."""
    count = int(sys.argv[1])
    engine = Engine(
        ["rates", *(f"--cfg={setting}" for setting in SETTINGS), "--log=root.thres:error"]
    )
    ways = paths(count, CASES[count])
    pairs = _platform(ways)
    collected: list[float] = []
    Actor.create("measure", pairs[0][0], _measure, pairs, collected)
    engine.run()
    json.dump(collected, sys.stdout)


def _platform(ways: list[list[int]]) -> list[tuple[object, object]]:
    """Two hosts a flow, joined by the links of its way; latency is on a link of its own."""
    zone = NetZone.create_full_zone("network")
    links = [
        zone.create_link(f"l{index}", rate).set_latency(0).seal()
        for index, rate in enumerate(capacities())
    ]
    pairs = []
    for flow, way in enumerate(ways):
        ends = [zone.create_host(f"{side}{flow}", 1e9).seal() for side in "ab"]
        late = zone.create_link(f"late{flow}", 1e15).set_latency(LATENCY).seal()
        route = [LinkInRoute(late), *(LinkInRoute(links[index]) for index in way)]
        zone.add_route(ends[0].netpoint, ends[1].netpoint, None, None, route, False)
        pairs.append((ends[0], ends[1]))
    zone.seal()
    return pairs


def _measure(pairs: list[tuple[object, object]], bytes_sent: list[float]) -> None:
    flows = [Comm.sendto_async(source, target, SIZE) for source, target in pairs]
    this_actor.sleep_for(LATENCY)
    before = [flow.remaining for flow in flows]
    this_actor.sleep_for(1.0)
    bytes_sent.extend(start - flow.remaining for start, flow in zip(before, flows, strict=True))
    for flow in flows:
        flow.cancel()


if __name__ == "__main__":
    main()
