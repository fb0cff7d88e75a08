"""Predict measured runs and summarise the signed errors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib.resources import as_file, files
from pathlib import Path
from statistics import mean, median
from typing import Any

from parsim.errors import PlanError
from parsim.sim import Prediction, simulate
from parsim.sim.interval import step_interval
from parsim.sim.known_errors import Errors, Standing
from parsim.sim.memory_spread import memory_spread
from parsim.validation.bubble import bubble_of, is_post_validated, post_validated_step
from parsim.validation.build import Case, build_case
from parsim.validation.coverage import Coverage, coverage
from parsim.validation.ranking import Ranking, rank
from parsim.validation.schema import MeasuredRun, RowSkipped, parse_row, read_table

SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One row; errors are (predicted - measured) / measured, None where nothing is measured.

    Of a skipped row `stack`, `device` and `precision` are as its cells say.
    `decision` is equal in rows that differ in the plan alone (see `validation/ranking.py`).
    `practice` is the software, apart with experts (`Job.practice`).
    `predicted_reserved` is set where the stack prints reserved memory, which `measured_peak` is.
    `case` is what was predicted, and `standing` what its interval follows from.
    """

    table: str
    row_id: str
    reason: str = ""
    model: str = ""
    system: str = ""
    stack: str = ""
    device: str = ""
    software: str = ""
    practice: str = ""
    precision: str = ""
    plan: str = ""
    decision: tuple[str | int, ...] = ()
    notes: tuple[str, ...] = ()
    predicted_step: float | None = None
    measured_step: float | None = None
    predicted_peak: float | None = None
    measured_peak: float | None = None
    predicted_reserved: float | None = None
    step_interval: tuple[float, float] | None = None
    peak_interval: tuple[float, float] | None = None
    measured_bubble: float | None = None
    predicted_bubble: float | None = None
    bubble_from_profile: float | None = None
    case: Case | None = None
    standing: Standing | None = None

    @property
    def skipped(self) -> bool:
        """True where no prediction was made; `reason` says why."""
        return bool(self.reason)

    @property
    def error(self) -> float | None:
        """Signed step-time error."""
        return _error(self.predicted_step, self.measured_step)

    @property
    def memory_error(self) -> float | None:
        """Signed peak-memory error: of reserved memory where the stack prints that."""
        return _error(self.predicted_reserved or self.predicted_peak, self.measured_peak)

    def with_errors(self, errors: Errors) -> Comparison:
        """The row with its intervals by other figures; the prediction stays."""
        peak = self.predicted_reserved or self.predicted_peak
        if self.standing is None or self.case is None or not self.predicted_step or not peak:
            return self
        step = step_interval(self.standing, self.predicted_step, errors)
        software, recompute = self.case.job.software, self.case.plan.recompute
        spread = memory_spread(software, recompute, self.standing.sizes, errors)
        return replace(
            self, step_interval=(step.low, step.high), peak_interval=spread.interval(peak)
        )

    def to_json(self) -> dict[str, Any]:
        """One entry of `validate --json`."""
        return {
            "table": self.table,
            "row_id": self.row_id,
            "status": "skipped" if self.skipped else "ok",
            "reason": self.reason,
            "predicted_step_time_s": self.predicted_step,
            "measured_step_time_s": self.measured_step,
            "error": self.error,
            "step_time_interval_s": self.step_interval and list(self.step_interval),
            "predicted_peak_allocated_bytes": self.predicted_peak,
            "predicted_peak_reserved_bytes": self.predicted_reserved,
            "measured_peak_memory_bytes": self.measured_peak,
            "memory_error": self.memory_error,
            "peak_interval_bytes": self.peak_interval and list(self.peak_interval),
            **self._bubbles(),
        }

    def _bubbles(self) -> dict[str, float | None]:
        """Only where the row states a bubble: by parsim's times, and by the row's own."""
        if self.measured_bubble is None:
            return {}
        return {
            "predicted_bubble_fraction": self.predicted_bubble,
            "bubble_from_profile": self.bubble_from_profile,
            "measured_bubble_fraction": self.measured_bubble,
        }


def _error(predicted: float | None, measured: float | None) -> float | None:
    if predicted is None or measured is None:
        return None
    return predicted / measured - 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Errors of one table (fractions); None where no row has a measured value."""

    n: int
    n_skipped: int
    mean_abs_error: float | None
    median_abs_error: float | None
    p90_abs_error: float | None
    max_abs_error: float | None
    bias: float | None

    def to_json(self) -> dict[str, Any]:
        """Field names are the JSON contract."""
        return {name: getattr(self, name) for name in self.__slots__}


def summarise(errors: Sequence[float], skipped: int) -> Summary:
    """Mean, median, 90th percentile (nearest rank) and maximum of |error|, and the mean error."""
    if not errors:
        return Summary(
            n=0,
            n_skipped=skipped,
            mean_abs_error=None,
            median_abs_error=None,
            p90_abs_error=None,
            max_abs_error=None,
            bias=None,
        )
    sizes = sorted(abs(e) for e in errors)
    rank = -(-9 * len(sizes) // 10)  # ceil(0.9 n)
    return Summary(
        n=len(sizes),
        n_skipped=skipped,
        mean_abs_error=mean(sizes),
        median_abs_error=median(sizes),
        p90_abs_error=sizes[rank - 1],
        max_abs_error=sizes[-1],
        bias=mean(errors),
    )


def compare_row(table: str, row: dict[str, str]) -> Comparison:
    """Predict one row."""
    row_id = row.get("row_id") or "(no row_id)"
    try:
        run = parse_row(row)
        case = build_case(run)
        found = simulate(case.job, case.plan)
        where = replace(found.standing, release=run.release)
        own, profiled = bubble_of(run, case.job, case.plan)
        step, said = _step(case, found)
    except (RowSkipped, PlanError) as reason:
        return Comparison(
            table=table,
            row_id=row_id,
            reason=str(reason),
            stack=row.get("stack", ""),
            device=row.get("gpu_type", ""),
            precision=row.get("precision", ""),
        )
    return Comparison(
        table=table,
        row_id=row_id,
        model=run.model,
        system=f"{case.job.cluster.num_nodes} x {run.system}",
        stack=run.stack,
        device=case.job.device.id,
        software=case.job.software.id,
        practice=case.job.practice,
        precision=case.plan.precision,
        plan=case.plan.label(),
        decision=_decision(case),
        notes=(*case.notes, *found.memory_notes, *_unstated(run), *said),
        predicted_step=step,
        measured_step=run.step_time,
        predicted_peak=max(found.peak_allocated),
        measured_peak=run.peak_memory if run.recompute else None,
        predicted_reserved=max(found.peak_reserved) if case.job.software.prints_reserved else None,
        step_interval=_interval(where, step),
        peak_interval=_peak_interval(case, found),
        measured_bubble=run.bubble_fraction,
        predicted_bubble=own,
        bubble_from_profile=profiled,
        case=case,
        standing=where,
    )


def _step(case: Case, found: Prediction) -> tuple[float, tuple[str, ...]]:
    """The step time, and what is assumed of it."""
    if not is_post_validated(case.job, case.plan):
        return found.step_time, ()
    said = "the norm of gradients is validated after the update (arXiv 2401.10241, section 4)"
    return post_validated_step(case.job, case.plan), (f"schedule {case.plan.schedule}: {said}",)


def _interval(where: Standing, step: float) -> tuple[float, float]:
    """The interval of the step time, which may be another than the simulated one."""
    interval = step_interval(where, step)
    return interval.low, interval.high


def _peak_interval(case: Case, found: Prediction) -> tuple[float, float]:
    """The peak's interval, of reserved memory where the stack prints that."""
    low, high = found.peak_interval
    scale = 1.0
    if case.job.software.prints_reserved:
        scale = max(found.peak_reserved) / max(found.peak_allocated)
    return scale * low, scale * high


def _decision(case: Case) -> tuple[str | int, ...]:
    """What is given when a plan is chosen; the model's sizes stand in its name and depth."""
    run = case.run
    return (run.stack, run.system, case.job.device.id, case.plan.precision, run.model, run.n_layers,
            run.seq_len, run.n_gpus, run.global_batch_size)  # fmt: skip


def _unstated(run: MeasuredRun) -> tuple[str, ...]:
    """Peaks differ several times over between recompute modes: one is not compared with a guess."""
    if run.peak_memory is None or run.recompute:
        return ()
    return (f"{run.row_id}: peak memory is not compared: recompute is not stated",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Validation:
    """All rows of all tables, in order."""

    rows: tuple[Comparison, ...]

    def with_errors(self, errors: Errors) -> Validation:
        """All rows with their intervals by other figures."""
        return Validation(rows=tuple(row.with_errors(errors) for row in self.rows))

    @property
    def tables(self) -> tuple[str, ...]:
        """Table names in order."""
        return tuple(dict.fromkeys(row.table for row in self.rows))

    @property
    def stacks(self) -> list[str]:
        """Software stacks of the predicted rows."""
        return sorted({row.stack for row in self.rows if row.stack and not row.skipped})

    def of(self, table: str) -> tuple[Comparison, ...]:
        """Rows of one table."""
        return tuple(row for row in self.rows if row.table == table)

    def summary(self, table: str) -> Summary:
        """Step-time errors of one table; a row without a step time counts as skipped."""
        rows = self.of(table)
        errors = [row.error for row in rows if row.error is not None]
        return summarise(errors, len(rows) - len(errors))

    def memory_summary(self, table: str) -> Summary:
        """Peak-memory errors of one table."""
        rows = self.of(table)
        errors = [row.memory_error for row in rows if row.memory_error is not None]
        return summarise(errors, len(rows) - len(errors))

    def ranking(self, table: str) -> Ranking:
        """Rank agreement and regret within the table's groups of plans.

        A plan that a table repeats (releases of the software) counts once, with its mean time.
        """
        plans: dict[tuple[tuple[str | int, ...], str], list[tuple[float, float]]] = {}
        for row in self.of(table):
            if row.predicted_step is not None and row.measured_step is not None:
                key = (row.decision, row.plan)
                plans.setdefault(key, []).append((row.predicted_step, row.measured_step))
        return rank(
            (decision, mean(p for p, _ in times), mean(m for _, m in times))
            for (decision, _), times in plans.items()
        )

    def coverage(self, table: str | None = None) -> Coverage:
        """Coverage of step intervals, of one table or of all."""
        return coverage(
            (row.predicted_step, row.measured_step, row.step_interval)
            for row in (self.rows if table is None else self.of(table))
            if row.predicted_step and row.measured_step and row.step_interval
        )

    def memory_coverage(self, table: str | None = None) -> Coverage:
        """Coverage of the intervals of peak memory."""
        return coverage(
            (row.predicted_reserved or row.predicted_peak, row.measured_peak, row.peak_interval)
            for row in (self.rows if table is None else self.of(table))
            if row.predicted_peak and row.measured_peak and row.peak_interval
        )

    def to_json(self) -> dict[str, Any]:
        """The document that `parsim validate --json` prints."""
        return {
            "schema_version": SCHEMA_VERSION,
            "rows": [row.to_json() for row in self.rows],
            "summary": {table: self.summary(table).to_json() for table in self.tables},
            "memory_summary": {t: self.memory_summary(t).to_json() for t in self.tables},
            "ranking": {table: self.ranking(table).to_json() for table in self.tables},
            "intervals": {t: self.coverage(t).to_json() for t in self.tables},
            "memory_intervals": {t: self.memory_coverage(t).to_json() for t in self.tables},
        }


def validate(
    paths: Sequence[Path], *, progress: Callable[[int, int], None] | None = None
) -> Validation:
    """Predict every row of the tables; `progress` is called with (rows done, rows in all).

    Raises:
        TableError: a table cannot be read at all.
    """
    listed = [(name, row) for path, name in _names(paths).items() for row in read_table(path)]
    rows = []
    for done, (name, row) in enumerate(listed, start=1):
        rows.append(compare_row(name, row))
        if progress:
            progress(done, len(listed))
    return Validation(rows=tuple(rows))


def _names(paths: Sequence[Path]) -> dict[Path, str]:
    """A table is called after its file; two files of one name are told apart by their paths."""
    stems = Counter(path.stem for path in dict.fromkeys(paths))
    return {path: path.stem if stems[path.stem] == 1 else str(path) for path in paths}


def shipped_tables() -> list[Path]:
    """The public tables that come with parsim."""
    folder = files("parsim.validation") / "data"
    with as_file(folder) as path:
        return sorted(path.glob("*.csv"))
