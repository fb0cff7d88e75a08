"""Writes reports/guide.md: what the simulator says to the usual claims on data parallelism.

    python -m parsim.fitting.reports.strategies REPORT

No number on the page is typed.
"""

from __future__ import annotations

import sys
from pathlib import Path

from parsim.fitting.reports.network import table
from parsim.fitting.reports.strategy_claims import (
    MACHINES,
    cores,
    crossovers,
    growing,
    servers,
    speed_ups,
)


def page() -> str:
    """The whole page."""
    heads = [f"{count}" for count in MACHINES[1:]]
    right = range(2, 2 + len(heads))
    parts = [HEAD]
    parts.append("## Near-linear speed-up to 8 to 16 devices?\n\n" + SPEED_UPS)
    parts.append(table(("model", "network", *heads), speed_ups(), right))
    for model, network in (("resnet50", "10Gb/s"), ("vgg16", "100Gb/s")):
        parts.append(f"## Servers and all-reduce: {model} on {network}\n\n{SERVER_WORDS}")
        parts.append(table(SERVER_HEAD, servers(model, network), range(6)))
    parts.append("## From where on asynchronous?\n\n" + CROSSOVERS)
    parts.append(table(CROSSOVER_HEAD, crossovers(), ()))
    parts.append("## VGG-16 on cores and on a GPU\n\n" + CORES)
    parts.append(table(("on", "samples/s"), cores(), (1,)))
    parts.append(
        "## Data parallelism for small models, model parallelism for large ones\n\n" + GROW
    )
    parts.append(table(GROW_HEAD, growing(), (1,)))
    return "\n\n".join(parts) + "\n"


HEAD = """# Claims on data parallelism, simulated

Written by `python -m parsim.fitting.reports.strategies reports/guide.md`. Machines of one V100
each with one interface; ResNet-50 and VGG-16 with 64 images a machine, BERT-large with 8
sequences of 512. Everything is predicted, nothing on this page was measured: V100 machines of
one device are among no published rows, and what a sample is worth in asynchronous training is
not known to the simulator."""
SPEED_UPS = "Speed-up of DDP over one machine, by number of machines."
SERVER_WORDS = """Samples a second; the last but one column is what one synchronous server
receives and sends in a step, GB: it grows with the machines (2 n P), where a
ring's share stays below 2 P."""
SERVER_HEAD = (
    *("machines", "all-reduce", "one server", "a server a host", "one asynchronous"),
    *("one server moves, GB", "one server is limited by"),
)
CROSSOVERS = """The fewest machines (2, 4, 8 ... 64) on which asynchronous servers, one a host,
take more samples a second than DDP: with equal machines (but for a spread of
1.5 % in speed), and with one that computes half as fast. The last column is
local SGD with 8 steps between averages over DDP on 64 machines."""
CROSSOVER_HEAD = (
    "model",
    "network",
    "equal machines",
    "one at half speed",
    "local SGD, 64 machines",
)
CORES = (
    "Eight images a core; cores are those of the catalog's `cpu`, DDP over gloo in shared memory."
)
GROW = """`parsim guide` on four nodes of eight A100 80GB, 64 sequences of 1,024 a step:
the family that it recommends, and whether the whole model fits one device."""
GROW_HEAD = (
    *("model", "parameters", "fits one device", "DDP fits"),
    *("recommended", "samples/s of those that fit"),
)


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page(), encoding="utf-8")
