"""What rank 0 writes: the prediction before the run, all that was measured, and its summary."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from executor.faults.reports import writing
from executor.measure.steps import Spread, Steps
from parsim.errors import InputError
from parsim.scenario import Scenario
from parsim.sim import Prediction, simulate
from parsim.timelines.timeline import Timeline

WROTE = "PARSIM_WROTE"
"""Names the file by which a launcher learns that rank 0 was among its ranks, of several nodes."""


def draw(
    scenario: Scenario, document: dict[str, Any], losses: Sequence[float], warmup: int, path: Path
) -> None:
    """Draw the losses."""
    from parsim.report.picture.loss import draw_loss

    draw_loss(
        losses,
        warmup=warmup,
        vocab_rows=_classes(scenario),
        title=f"{scenario.job.model.name} on {document['device']}",
        plan=scenario.fixed_plan().label(),
        path=path,
        per="sample" if scenario.job.model.tokens == 1 else "token",
    )


def present(document: dict[str, Any], out: Path) -> None:
    """Tell the launcher, or print the summary where there is none.

    `parsim run` prints the summary itself; a script of `parsim run --emit` has nobody else to do
    so.
    """
    from rich.console import Console

    from parsim.report.text.run import run_view

    if path := os.environ.get(WROTE):
        Path(path).touch()
    else:
        Console(width=None if os.isatty(1) else 160).print(run_view(document, str(out)))


def _classes(scenario: Scenario) -> int:
    """Among how many a guess is made, whose loss is the logarithm of that."""
    loss = scenario.job.model.loss
    return loss.vocab_size if loss is not None else 1


def predict(scenario: Scenario, folder: Path) -> Prediction:
    """Predict the run, and have that on disk before anything is measured.

    Raises:
        InputError: it cannot be written.
    """
    plan, jitter = scenario.fixed_plan(), scenario.jitter
    if not plan.strategy.own_program:  # its ranks are not slowed
        jitter = jitter.without("slow_ranks")
    margin = scenario.memory_margin
    predicted = simulate(scenario.job, plan, timeline=True, memory_margin=margin, jitter=jitter)
    if predicted.timeline is not None:
        with writing(folder / "predicted.json") as path:
            path.parent.mkdir(parents=True, exist_ok=True)
            predicted.timeline.save(path)
    return predicted


def save_results(
    scenario: Scenario,
    folder: Path,
    document: dict[str, Any],
    losses: Sequence[float],
    warmup: int,
    timeline: Timeline | None = None,
) -> None:
    """Write `run.json`, the measured timeline and the picture of the losses; tell of the end.

    Raises:
        InputError: the disk refused a file. What was measured is kept elsewhere, if possible.
    """
    results = Results(folder)
    text = json.dumps(document, indent=2, allow_nan=False) + "\n"
    results.save("run.json", lambda path: path.write_text(text, encoding="utf-8"))
    if timeline is not None:
        results.save("timeline.json", timeline.save)
    results.save("loss.png", lambda path: draw(scenario, document, losses, warmup, path))
    results.check()
    present(document, folder)


def named(
    timeline: Timeline,
    scenario: Scenario,
    document: dict[str, Any],
    steps: Steps,
    hardware: Mapping[str, Any],
) -> Timeline:
    """The measured timeline with what it says of the whole run."""
    measured, spread = document["measured"], Spread.of(steps.seconds)
    typical = {"step_time_s": spread.median, "spread": {"step_time_s": spread.to_json()}}
    meta = {
        **timeline.meta,
        "model": scenario.job.model.name,
        "parameters": scenario.job.model.parameters,
        "system": document["device"],
        **hardware,
        "plan": scenario.fixed_plan().label(),
        **(typical if spread.n else {}),
        **({"core_pace": pace["median"]} if (pace := measured.get("core_pace")) else {}),
        "bubble_fraction": measured["bubble_fraction"],
        "peak_allocated_bytes": measured["peak_allocated_bytes"],
    }
    return replace(timeline, meta=meta)


@dataclass(slots=True)
class Results:
    """The files of a run; where its folder refuses one, another folder keeps it."""

    folder: Path
    _elsewhere: Path | None = None
    _refused: list[str] = field(default_factory=list)

    def save(self, name: str, write: Callable[[Path], object]) -> None:
        """Write one file, here or elsewhere."""
        path = self.folder / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write(path)
        except (OSError, InputError) as error:
            told = f"cannot write {path}: {getattr(error, 'strerror', None) or error}"
            self._refused.append(str(error) if isinstance(error, InputError) else told)
            with suppress(OSError, InputError):
                path.unlink(missing_ok=True)  # half of a file is worse than none
                write(self._other() / name)

    def check(self) -> None:
        """Name the first file that was refused.

        Raises:
            InputError: there is one.
        """
        for refused in self._refused[:1]:
            kept: Sequence[Path] = sorted(self._elsewhere.iterdir()) if self._elsewhere else ()
            where = (
                f"what was measured is kept in {', '.join(map(str, kept))}"
                if kept
                else "nothing else could be kept; each step is in steps.jsonl"
            )
            raise InputError(
                f"{refused}; {where}; choose another folder with --out, or free space there"
            )

    def _other(self) -> Path:
        self._elsewhere = self._elsewhere or Path(tempfile.mkdtemp(prefix="parsim-run-"))
        return self._elsewhere
