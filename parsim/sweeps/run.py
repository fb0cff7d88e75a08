"""Run the cases of a sweep, on one core or several; what is known already is not run again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from parsim.errors import ParsimError
from parsim.plan import Plan
from parsim.planner import search
from parsim.scenario import Scenario, load_scenario
from parsim.sim import simulate
from parsim.sim.confidence.memory_fit import Fit
from parsim.sweeps.case import Case
from parsim.sweeps.outcome import Outcome
from parsim.training_run.training_run import predicted_run
from parsim.units import format_bytes

DAY = 86400.0

Done = Callable[[Outcome], None]


def run_cases(
    cases: Sequence[Case], *, known: Mapping[str, Outcome] = {}, jobs: int = 1
) -> Iterator[Outcome]:
    """The outcomes of cases, in their order, as they come.

    Args:
        cases: what to run.
        known: outcomes of an earlier run by digest.
        jobs: processes; 1 runs here.
    """
    digests = [case.digest for case in cases]
    new = [(case, digest) for case, digest in zip(cases, digests, strict=True)]
    new = [pair for pair in new if pair[1] not in known]
    if jobs == 1 or len(new) < 2:
        fresh = (_run(pair) for pair in new)
        yield from _in_order(digests, known, fresh)
        return
    with ProcessPoolExecutor(min(jobs, len(new)), mp_context=get_context("spawn")) as pool:
        try:
            yield from _in_order(digests, known, pool.map(_run, new))
        except (GeneratorExit, KeyboardInterrupt):
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _in_order(
    digests: Sequence[str], known: Mapping[str, Outcome], fresh: Iterator[Outcome]
) -> Iterator[Outcome]:
    for digest in digests:
        yield known[digest] if digest in known else next(fresh)


def _run(pair: tuple[Case, str]) -> Outcome:
    """One case; what cannot be is a row with the reason."""
    case, digest = pair
    try:
        scenario = load_scenario(case.path, case.overrides)
        return _outcome(case, digest, scenario, _plan(case, scenario))
    except ParsimError as error:
        return Outcome(values=case.values, digest=digest, error=" ".join(str(error).split()))


def _plan(case: Case, scenario: Scenario) -> Plan:
    if case.best or scenario.plan is None:
        return search(scenario.job, scenario.plan_space(), top=1).plans[0].plan
    return scenario.plan


def _outcome(case: Case, digest: str, scenario: Scenario, plan: Plan) -> Outcome:
    """The numbers of a plan."""
    prediction = simulate(scenario.job, plan, memory_margin=scenario.memory_margin)
    run = predicted_run(scenario.job, scenario.goal, prediction)
    nan = float("nan")
    peak = max(prediction.peak_allocated)
    too_large = prediction.fit is Fit.TOO_LARGE
    need = f"needs {format_bytes(peak)} of {format_bytes(prediction.usable)}"
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
        peak_allocated_bytes=peak,
        memory_fit=prediction.fit.value,
        days=run.elapsed.value / DAY if run else nan,
        cost_usd=run.cost.value if run and run.cost else nan,
        energy_kwh=run.energy.value if run and run.energy else nan,
        error=need if too_large else "",
    )
