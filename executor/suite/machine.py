"""What the suite runs on, asked of torch in a process of its own that then ends.

So the suite itself never imports torch, and holds no memory of a GPU while the ranks run. Names of
hardware and software only: nothing says which machine it was.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass

from executor.devices.machine import SHARING_NCCL, SHARING_VARIABLE, nccl_version
from executor.faults.parent import command
from parsim.errors import InputError
from parsim.launch.nodes import Nodes
from parsim.launch.ranks import PARENT, settings

SHARING = {SHARING_VARIABLE: "1", "NCCL_NVLS_ENABLE": "0"}
"""Environment in which several ranks may use one GPU, where NCCL is new enough; multicast over
NVLink needs a GPU for each rank."""


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Environment of the ranks, as `parsim run` sets it: a case is as fast in either.

    It names this process as their parent, whoever was named to this one.
    """
    usual = settings(Nodes(), linux=sys.platform == "linux")
    return {**usual, **os.environ, **(extra or {}), PARENT: str(os.getpid())}


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """The devices, and what drives them; `nccl` is empty on a CPU. `load` is before the suite."""

    kind: str
    backend: str
    count: int
    names: tuple[str, ...]
    torch: str
    cuda: str
    nccl: tuple[int, ...]
    python: str
    load: float

    @property
    def shares(self) -> bool:
        """Whether several ranks may use one device."""
        return self.kind == "cpu" or self.nccl[:2] >= SHARING_NCCL


def look(device: str | None) -> Machine:
    """Ask for the devices of a kind; by default for GPUs, and for the CPU where there are none.

    Raises:
        InputError: there is no such device, or torch is missing.
    """
    words = [sys.executable, "-m", "executor.suite.machine", *([device] if device else [])]
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=environment())
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no answer"])[-1]
        raise InputError(last.removeprefix("error: "))
    document = json.loads(done.stdout)
    lists = {name: tuple(document[name]) for name in ("names", "nccl")}
    return Machine(**{**document, **lists})


def _probe(device: str | None) -> Machine:
    from executor.devices.machine import probe
    from executor.torch_internals.version import require_torch

    version = require_torch()
    report = probe(device)
    import torch

    load = 0.0
    with suppress(OSError):
        load = os.getloadavg()[0]
    cuda = report.kind == "cuda"
    return Machine(
        kind=report.kind,
        backend=report.backend,
        count=report.count,
        names=tuple(sorted(set(report.names))),
        torch=version,
        cuda=str(torch.version.cuda) if cuda else "",
        nccl=nccl_version() if cuda else (),
        python=".".join(map(str, sys.version_info[:3])),
        load=load,
    )


def main() -> int:
    """Print the machine as JSON."""
    parser = argparse.ArgumentParser(prog="python -m executor.suite.machine", description=__doc__)
    parser.add_argument("device", nargs="?", choices=("cpu", "cuda"))
    options = parser.parse_args()
    return command(lambda: _print(_probe(options.device)))


def _print(machine: Machine) -> None:
    sys.stdout.write(json.dumps(asdict(machine)) + "\n")


if __name__ == "__main__":
    raise SystemExit(main())
