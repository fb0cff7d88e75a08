"""The stages of a suite in their order: calibrate, predict, run, compare."""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from executor.devices.machine import SHARING_NCCL, SHARING_VARIABLE
from executor.faults.messages import say
from executor.suite.budget import Budget, Cost
from executor.suite.cases import Platform, SuiteCase, before_calibration, calibrated, scenario_text
from executor.suite.machine import SHARING, Machine
from executor.suite.predict import Predicted, now, predict, scenario_of
from executor.suite.report import write_report
from executor.suite.results import read
from executor.suite.session import CaseError, CaseStopped, Session
from parsim.cluster.reader import load_catalog
from parsim.files import read_json
from parsim.launch import measuring
from parsim.launch.news import STEPS
from parsim.report.writing import write_text
from parsim.scenario import load_scenario

LONGEST_CALIBRATION = 120.0
REPORT_SHARE = 0.06

HANG = 120.0
"""Seconds without an answer of a rank before the others give up."""


@dataclass(slots=True, kw_only=True)
class Suite:
    """One run of the suite into a folder.

    `seconds` are for all of it, `calibration` for measuring kernels and links, `steps` are timed in
    each case after `warmup`. To `resume` is to keep what the folder has of an earlier run on such a
    machine: its calibration, its predictions, and the cases that are done. `base` is the catalog's
    device that stands in for a GPU that the catalog lacks.
    """

    out: Path
    machine: Machine
    cases: tuple[SuiteCase, ...]
    seconds: float
    calibration: float
    steps: int
    warmup: int
    resume: bool = False
    base: str | None = None
    budget: Budget = field(init=False)
    progress: dict[str, Any] = field(default_factory=dict)

    def run(self) -> int:
        """Do all stages; 1 if a case failed, else 0."""
        kept = REPORT_SHARE * self.seconds
        self.budget = Budget(total=self.seconds, kept=kept, warmup=self.warmup)
        earlier = self._earlier() if self.resume else {}
        self.progress = {
            "began_at": now(),
            "machine": asdict(self.machine),
            "warmup": self.warmup,
            "seconds_given": self.seconds,
            "cases": earlier.get("cases", {}),
        }
        self._save()
        platform = self._measured() if earlier else self._calibrate()
        predicted = predict(self.out, self.cases, platform, written=bool(earlier))
        say(f"{len(predicted)} cases predicted: {self.out / 'predictions.json'}")
        self._run_cases(predicted, earlier.get("cases", {}))
        return self._conclude()

    def _run_cases(self, predicted: Mapping[str, Predicted], done: Collection[str]) -> None:
        """Run the cases that are not done, those of as many ranks in one session."""
        with ExitStack() as stack:
            sessions: dict[int, Session] = {}
            for number, case in enumerate(self.cases):
                if case.name in done:
                    continue
                waiting = (predicted[other.name] for other in self.cases[number + 1 :])
                later = [prediction.cost for prediction in waiting if not prediction.refused]
                ranks = case.world_size
                if ranks not in sessions:
                    extra = SHARING if ranks > self.machine.count else None
                    sessions[ranks] = stack.enter_context(Session(ranks, extra))
                self._case(case, predicted[case.name], later, sessions[ranks])

    def _earlier(self) -> dict[str, Any]:
        """The record of an earlier run on such a machine with the cases that are done, if any."""
        needed = ("progress.json", "predictions.json", "calibration.json", "device.yaml")
        if not all((self.out / name).is_file() for name in needed):
            return {}
        record: dict[str, Any] = read_json(self.out / "progress.json")
        known = json.loads(json.dumps({**asdict(self.machine), "load": None}))
        names = read_json(self.out / "predictions.json")["cases"].keys()
        if {**record["machine"], "load": None} != known or names != {c.name for c in self.cases}:
            return {}
        done = {name: case for name, case in record["cases"].items() if case["status"] == "done"}
        say(f"goes on: {len(done)} of {len(self.cases)} cases are done")
        return {**record, "cases": done}

    def _measured(self) -> Platform:
        """The platform that the folder's calibration wrote."""
        document = read_json(self.out / "calibration.json")
        catalog = load_catalog([self.out / "device.yaml"])
        return calibrated(self.machine.kind, document, catalog)

    def _save(self) -> None:
        write_text(self.out / "progress.json", json.dumps(self.progress, indent=2) + "\n")

    def _calibrate(self) -> Platform:
        """Measure the machine with the shapes of all cases."""
        kind = self.machine.kind
        scenarios = self._largest_first(before_calibration(kind))
        say(f"calibrating with the shapes of {len(scenarios)} cases")
        document = measuring.calibrate(
            self.out / "device.yaml",
            scenarios=scenarios,
            seconds=self.calibration,
            device=kind,
            base=self.base,
            log=self.out / "calibration.log",
        )
        write_text(self.out / "calibration.json", json.dumps(document, indent=2) + "\n")
        return calibrated(kind, document, load_catalog([self.out / "device.yaml"]))

    def _largest_first(self, platform: Platform) -> list[Path]:
        """The cases' scenarios as they are first: most parameters, then fewest ranks."""
        sizes: dict[Path, tuple[float, int]] = {}
        for case in self.cases:
            path = scenario_of(self.out, case)
            write_text(path, scenario_text(case, platform))
            sizes[path] = (load_scenario(path).job.model.parameters, -case.world_size)
        return sorted(sizes, key=lambda path: sizes[path], reverse=True)

    def _case(
        self, case: SuiteCase, known: Predicted, later: Sequence[Cost], session: Session
    ) -> None:
        """Run one case, or say why not."""
        label, backend, refused = _sharing(case, self.machine)
        steps = self.budget.steps(known.cost, later, self.steps)
        late = "" if steps else self.budget.why_not(known.cost, self.steps)
        reason = known.refused or refused or late
        entry: dict[str, Any] = {"family": case.family, "label": label}
        self.progress["cases"][case.name] = entry
        if reason:
            entry |= {"status": "skipped", "reason": reason}
        else:
            say(f"{case.name}: {self.warmup} + {steps} steps, {self.budget.left:.0f} s left")
            entry |= {"began_at": now(), "status": "failed", "reason": "cut short"}
            self._save()
            entry |= self._measure(case, steps, known.cost, session, backend)
        if entry["status"] != "done":
            say(f"{case.name} {entry['status']}: {entry['reason']}")
        self._save()
        write_report(self.out, read(self.out))

    def _measure(
        self, case: SuiteCase, steps: int, cost: Cost, session: Session, backend: str | None
    ) -> dict[str, Any]:
        folder, began = self.out / case.name, time.monotonic()
        words = [
            str(scenario_of(self.out, case)),
            f"--out={folder}",
            f"--steps={steps}",
            f"--warmup={self.warmup}",
            f"--device={self.machine.kind}",
            f"--timeout={HANG:.0f}",
            "--oversubscribe",
        ]
        for name in ("run.json", STEPS):
            (folder / name).unlink(missing_ok=True)
        try:
            session.run(words, folder, limit=self.budget.limit(cost, steps), backend=backend)
        except CaseStopped as error:
            hung = self.budget.left > 1.0  # else its time was over, and nothing is wrong with it
            return {"status": "failed" if hung else "skipped", "reason": str(error)}
        except CaseError as error:
            return {"status": "failed", "reason": str(error).replace(f"{self.out}/", "")}
        took = time.monotonic() - began
        self.budget.took(took, cost, steps)
        return {"status": "done", "reason": "", "took_s": took}

    def _conclude(self) -> int:
        self.progress["seconds"] = time.monotonic() - self.budget.began
        self._save()
        redraw(self.out)
        failed = [n for n, case in self.progress["cases"].items() if case["status"] == "failed"]
        if failed:
            say(f"error: cases that failed: {', '.join(failed)}; see report.md")
        return 1 if failed else 0


def redraw(out: Path) -> int:
    """Write the report and the pictures of a folder."""
    from executor.suite.pictures import draw_all

    outcome = read(out)
    write_report(out, outcome, draw_all(out, outcome))
    say(f"report written: {out / 'report.md'}")
    return 0


def _sharing(case: SuiteCase, machine: Machine) -> tuple[str, str | None, str]:
    """How a case shares devices: its label, another backend if needed, or why it cannot be run."""
    if case.world_size <= machine.count:
        return "", None, ""
    if machine.kind == "cpu":
        return "ranks share one core", None, ""
    words = "ranks share one GPU: correctness is real, speed is not that of N GPUs"
    if machine.shares:
        return f"{words}; NCCL", None, ""
    if set(case.plan) <= {"dp", "microbatch_size"}:
        return f"{words}; gloo, staged through the host", "gloo", ""
    present, first = (".".join(map(str, version)) for version in (machine.nccl, SHARING_NCCL))
    refused = (
        f"{case.world_size} ranks on {machine.count} GPU: NCCL {present} refuses it (allowed from "
        f"{first} on, with {SHARING_VARIABLE}=1), and gloo stages only the all-reduces of data "
        f"parallelism"
    )
    return words, None, refused
