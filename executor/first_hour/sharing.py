"""Two ranks on one GPU over gloo, which stages messages through the host; verified.

    python -m executor.first_hour.sharing SCENARIO.yaml OUT --device cuda

For an NCCL that refuses two ranks on a GPU. `parsim run` does not offer this way: speed over gloo
says nothing of N GPUs, and it stages only the all-reduces of data parallelism.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from executor.faults.parent import command
from executor.suite.session import Session
from parsim.errors import ToleranceExceeded
from parsim.files import read_json

RANKS = 2
LIMIT = 240.0
"""Seconds for both ranks to start, verify and train."""


def main() -> int:
    """Run the scenario's plan on two ranks; 0 if its gradients are right."""
    parser = argparse.ArgumentParser(
        prog="python -m executor.first_hour.sharing", description=__doc__
    )
    parser.add_argument("scenario", type=Path, metavar="SCENARIO.yaml")
    parser.add_argument("out", type=Path, metavar="OUT")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    options = parser.parse_args()
    return command(lambda: _staged(options.scenario, options.out, options.device))


def _staged(scenario: Path, out: Path, device: str) -> None:
    """Train and verify.

    Raises:
        CaseError: a rank failed, or took too long.
        ToleranceExceeded: gradients are not those of one process.
    """
    out.mkdir(parents=True, exist_ok=True)
    words = [str(scenario), f"--out={out}", "--steps=5", "--verify", f"--device={device}"]
    with Session(RANKS) as session:
        session.run([*words, "--timeout=60"], out, limit=LIMIT, backend="gloo")
    verdict = read_json(out / "run.json")["verify"]
    if not verdict["within"]:
        raise ToleranceExceeded(f"two ranks over gloo: gradients are off: {verdict}")
    sys.stdout.write(f"two ranks share one device over gloo; verified: {verdict}\n")


if __name__ == "__main__":
    raise SystemExit(main())
