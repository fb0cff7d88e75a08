"""Run the cases of a sweep, here or on many machines; what is known already is not run again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, fields
from math import nan
from typing import Any

from parsim.errors import ParsimError
from parsim.model.model import Model
from parsim.plan import Plan
from parsim.planner import search
from parsim.results import Result
from parsim.scenario import Scenario, load_scenario
from parsim.sim import Prediction, simulate
from parsim.sim.confidence.memory_fit import Fit
from parsim.sweeps.case import SweepCase
from parsim.sweeps.workers import in_order
from parsim.training_run.training_run import predicted_run
from parsim.units import DAY, counted, format_bytes, format_seconds

SCHEMA_VERSION = 1


OTHERWISE = "otherwise"
"""Gradients are stale, dropped or compressed, or workers drift apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One case: the values that tell it from others, and its plan's numbers.

    Where the case cannot be, or its plan is too large, `error` says why; numbers that it does not
    have are nan. `digest` tells whether a row of an earlier run is of the same case, and `model`
    which model and samples it trains, `speed_unit` what its speed counts, and `training` is
    "otherwise" where its steps are not those of the whole batch; older tables do not say.
    """

    values: Mapping[str, str]
    digest: str
    plan: str = ""
    devices: int = 0
    step_time_s: float = float("nan")
    step_time_low_s: float = float("nan")
    step_time_high_s: float = float("nan")
    tokens_per_s: float = float("nan")
    mfu: float = float("nan")
    bubble_fraction: float = float("nan")
    exposed_communication_s: float = float("nan")
    peak_allocated_bytes: float = float("nan")
    memory_fit: str = ""
    days: float = float("nan")
    cost_usd: float = float("nan")
    energy_kwh: float = float("nan")
    error: str = ""
    model: str = ""
    speed_unit: str = ""
    training: str = ""

    def record(self) -> dict[str, Any]:
        """A flat row: values first, missing numbers as None."""
        row = {name: x for name, x in asdict(self).items() if name != "values"}
        numbers = {name: None if x != x else x for name, x in row.items()}
        return {**self.values, **numbers}

    def cells(self, keys: Sequence[str]) -> list[Any]:
        """The values of the keys, then the `NUMBERS`, missing ones as None."""
        record = self.record()
        return [*(self.values[key] for key in keys), *(record[name] for name in NUMBERS)]


NUMBERS = tuple(field.name for field in fields(Outcome) if field.name != "values")


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Outcomes(Result):
    """All cases in their order; `keys` are the fields that tell them apart.

    `total` is how many cases were asked for, more than there are rows where it was interrupted.
    """

    rows: tuple[Outcome, ...]
    keys: tuple[str, ...]
    total: int

    @property
    def fastest(self) -> Outcome | None:
        """The case with the most tokens a second."""
        done = [row for row in self.rows if not row.error]
        return max(done, key=lambda row: row.tokens_per_s, default=None)

    @property
    def models(self) -> tuple[str, ...]:
        """The models with their samples that the cases train; speeds of one alone can be ranked.

        Models of as many parameters and as large samples are one, whatever their files call them.
        """
        by_size: dict[str, str] = {}
        for row in self.rows:
            if row.model and not row.error:
                by_size.setdefault(row.model.partition(" (")[2] or row.model, row.model)
        return tuple(by_size.values())

    @property
    def headline(self) -> str:
        """How many cases, and the one with the most tokens, or samples, a second."""
        best, count = self.fastest, counted(len(self.rows), "case")
        if best is None:
            return f"{count}, none of which can be"
        if len(self.models) > 1:
            return f"{count} of different models or samples, which are not ranked by speed"
        words = ", ".join(f"{key}={value}" for key, value in best.values.items())
        step = format_seconds(best.step_time_s)
        speed = f"{best.tokens_per_s:,.0f} {self.speed_unit}"
        mark = ", which trains otherwise than with the whole batch" if best.training else ""
        return f"{count}; fastest {words}: {step} a step, {speed}{mark}"

    @property
    def speed_unit(self) -> str:
        """What speeds count: tokens, samples, or some these and some those."""
        units = {row.speed_unit for row in self.rows if not row.error}
        return units.pop() if len(units) == 1 and all(units) else "tokens or samples/s"

    def to_json(self) -> dict[str, Any]:
        """The document that `parsim sweep --json` prints."""
        return {
            "schema_version": SCHEMA_VERSION,
            "keys": list(self.keys),
            "cases": self.total,
            "rows": [row.record() for row in self.rows],
        }

    def records(self) -> list[dict[str, Any]]:
        """One row per case."""
        return [row.record() for row in self.rows]


def run_cases(
    cases: Sequence[SweepCase],
    *,
    known: Mapping[str, Outcome] = {},
    jobs: int = 1,
    backend: str | None = None,
) -> Iterator[Outcome]:
    """The outcomes of cases, in their order, as they come.

    Args:
        cases: what to run.
        known: outcomes of an earlier run by digest.
        jobs: cases at a time; 0 is as many as there are cores.
        backend: what joblib runs them on; None is this machine, without joblib.
    """
    digests = [case.digest for case in cases]
    pairs = zip(cases, digests, strict=True)
    new = [(case, digest) for case, digest in pairs if digest not in known]
    with closing(in_order(_run, new, jobs=jobs, backend=backend)) as fresh:
        for digest in digests:
            yield known[digest] if digest in known else next(fresh)


def _run(pair: tuple[SweepCase, str]) -> Outcome:
    """One case; what cannot be is a row with the reason."""
    case, digest = pair
    try:
        scenario = load_scenario(case.path, case.overrides)
        return _outcome(case, digest, scenario, _plan(case, scenario))
    except ParsimError as error:
        return Outcome(values=case.values, digest=digest, error=" ".join(str(error).split()))


def _plan(case: SweepCase, scenario: Scenario) -> Plan:
    if case.best or scenario.plan is None:
        result = search(scenario.job, scenario.plan_space(), top=1, jitter=scenario.jitter)
        return result.plans[0].plan
    return scenario.plan


def _outcome(case: SweepCase, digest: str, scenario: Scenario, plan: Plan) -> Outcome:
    """The numbers of a plan."""
    margin, jitter = scenario.memory_margin, scenario.jitter
    prediction = simulate(scenario.job, plan, memory_margin=margin, jitter=jitter)
    fullest = prediction.fullest
    need = f"needs {format_bytes(fullest.peak_allocated)} of {format_bytes(fullest.usable)}"
    return Outcome(
        values=case.values,
        digest=digest,
        plan=plan.label(),
        devices=plan.world_size,
        step_time_s=prediction.step_time,
        step_time_low_s=prediction.interval.low,
        step_time_high_s=prediction.interval.high,
        tokens_per_s=prediction.tokens_per_second,
        mfu=prediction.mfu,
        bubble_fraction=prediction.bubble_fraction,
        exposed_communication_s=prediction.breakdown.get("exposed_communication", nan),
        peak_allocated_bytes=fullest.peak_allocated,
        memory_fit=prediction.fit.value,
        **_whole_run(scenario, prediction),
        error=need if prediction.fit is Fit.TOO_LARGE else "",
        model=_model_words(scenario.job.model),
        speed_unit=scenario.job.model.speed_unit,
        training=OTHERWISE if _trains_otherwise(prediction) else "",
    )


def _trains_otherwise(prediction: Prediction) -> bool:
    return prediction.strategy is not None and prediction.strategy.trains_otherwise


def _whole_run(scenario: Scenario, prediction: Prediction) -> dict[str, float]:
    """Days, dollars and energy of the whole run; nan where none is asked for."""
    run = predicted_run(scenario.job, scenario.goal, prediction)
    return {
        "days": run.elapsed.value / DAY if run else nan,
        "cost_usd": run.cost.value if run and run.cost else nan,
        "energy_kwh": run.energy.value if run and run.energy else nan,
    }


def _model_words(model: Model) -> str:
    """A model, its size and what one of its samples is."""
    sizes = (model.tokens,) if model.graph is None else model.graph.input_shape
    sample = "x".join(map(str, sizes))
    return f"{model.name} ({model.parameters:,} parameters, samples of {sample})"
