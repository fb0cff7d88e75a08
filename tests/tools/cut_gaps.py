"""Measures how much slower the cuts that plans are given are than the best cuts known.

python -m tests.tools.cut_gaps gaps.json [--models gpt2,llama] [--pp 2,4] [-m 2,4]

Each case is a model on pp ranks under a schedule with m micro-batches, its software `generic`. The
best cut known is what moves of one layer lead to, judged by the whole step, from the cut given and
from the even one; the file keeps it, so that another version of the choice is judged by the same.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from statistics import fmean

from parsim.cluster.hardware import Cluster
from parsim.cluster.reader import load_catalog
from parsim.cost.job import Job
from parsim.cost.legal import illegal
from parsim.cost.software import software
from parsim.cost.step.chain import Cut
from parsim.cost.step.layer_table import LayerTable
from parsim.cost.step.stages import plan_cut
from parsim.model.reader import model_spec
from parsim.model.transformer import build_transformer
from parsim.plan import Plan, PlanTable
from parsim.plan.names import CHUNKED, SCHEDULE_NAMES, V_SHAPED
from parsim.sim.cuts import with_better_cut
from parsim.sim.recurrence.evaluate import evaluate

MODELS = {
    "gpt2": ("gpt2", {"seq_len": 512}, "dgx-a100", 1),
    "llama": ("llama3-8b", {}, "dgx-h100", 1),
    "gpt3": ("gpt3-175b", {"vocab_size": 256_000, "padded_vocab_size": 256_000}, "dgx-a100", 8),
    "moe": ("deepseek-v2", {}, "dgx-h100", 8),
}
"""A model's name in the catalog, what differs from it, its system and its tensor-parallel degree.

Heads are worth five layers, two, one and a half, and less than one.
"""

LEFT_OUT = ("naive", "bpipe", "zb_auto")
"""Schedules that are others' orders, or whose order is long looked for."""

ROUNDS = 40
"""Moves after which a descent ends."""


@dataclass
class Steps:
    """Seconds of a plan's step by its cut; the layers are priced once."""

    job: Job
    plan: Plan

    def __post_init__(self) -> None:
        self.known: dict[Cut, float] = {}
        self.layers = [LayerTable.of(self.job, PlanTable.of([self.plan]))]

    def __call__(self, cut: Cut) -> float:
        """The step with a cut; infinite where it is illegal."""
        if cut not in self.known:
            plan = replace(self.plan, stage_layers=cut)
            self.known[cut] = inf if illegal(self.job, plan) else self._evaluated(plan)
        return self.known[cut]

    def _evaluated(self, plan: Plan) -> float:
        return evaluate(self.job, plan, memory=False, layers=self.layers).step_time

    def descended(self, cut: Cut) -> Cut:
        """The cut that no move of one layer to a neighbour makes faster."""
        for _ in range(ROUNDS):
            best = min(_moved(cut), key=self)
            if self(best) >= self(cut) * (1 - 1e-9):
                break
            cut = best
        return cut


def _moved(cut: Cut) -> Iterator[Cut]:
    """Cuts with a layer of a stage on the one before or behind; only ends may have none."""
    for left in range(len(cut) - 1):
        for giver, taker in ((left, left + 1), (left + 1, left)):
            if cut[giver] > (0 < giver < len(cut) - 1):
                each = list(cut)
                each[giver] -= 1
                each[taker] += 1
                yield tuple(each)


def job_of(name: str, pp: int) -> Job:
    """A model on pp ranks of its system, whose devices hold any plan."""
    model, changes, system_name, tp = MODELS[name]
    system, world = load_catalog().system(system_name), pp * tp
    device = replace(system.device, memory=1e15)
    system = replace(system, device=device, devices_per_node=min(8, world))
    cluster = Cluster(system=system, num_nodes=max(1, world // 8))
    spec = replace(model_spec(model), **changes)  # type: ignore[arg-type]
    return Job(model=build_transformer(spec), cluster=cluster, software=software("generic"))


def plans(name: str, job: Job, pp: int, counts: list[int]) -> Iterator[Plan]:
    """Legal plans of all schedules with so many micro-batches."""
    tp = MODELS[name][3]
    plain = Plan(tp=tp, pp=pp, microbatch_size=1, precision="bf16", sequence_parallel=tp > 1)
    for schedule in SCHEDULE_NAMES:
        if schedule in LEFT_OUT:
            continue
        for v in (2, 3) if schedule in CHUNKED else (2,) if schedule in V_SHAPED else (1,):
            for count in counts:
                plan = replace(plain, schedule=schedule, v=v, num_microbatches=count)
                if illegal(job, plan) is None:
                    yield plan


def gap(job: Job, plan: Plan, known: Cut | None) -> tuple[float, Cut]:
    """By what share the cut given is slower than the best one known, and that one."""
    steps, layers = Steps(job, plan), job.model.num_layers
    given = plan_cut(with_better_cut(job, plan), layers)
    tried = [given, known] if known else map(steps.descended, (given, plan_cut(plan, layers)))
    best = min((given, *tried), key=steps)
    return steps(given) / steps(best) - 1.0, best


def main() -> None:
    """Measure the cases asked for, and print the mean and the largest gap of each kind."""
    arguments = _arguments()
    store: Path = arguments.store
    known = json.loads(store.read_text(encoding="utf-8")) if store.exists() else {}
    gaps: dict[str, list[float]] = {}
    for name in arguments.models.split(","):
        for pp in map(int, arguments.pp.split(",")):
            job, counts = job_of(name, pp), [int(each) for each in arguments.m.split(",")]
            for plan in plans(name, job, pp, counts):
                words = (name, plan.schedule, f"v{plan.v}", f"pp{pp}", f"m{plan.num_microbatches}")
                best = known.get(" ".join(words))
                share, cut = gap(job, plan, tuple(best) if best else None)
                known[" ".join(words)] = cut
                for kind in ("all", words[0], words[1], words[3], words[4]):
                    gaps.setdefault(kind, []).append(100.0 * share)
        store.write_text(json.dumps(known), encoding="utf-8")
    for kind, shares in gaps.items():
        line = f"{kind:18} {len(shares):4}  mean {fmean(shares):5.2f} %  worst {max(shares):5.2f} %"
        sys.stdout.write(line + "\n")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("store", type=Path)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--pp", default="2,4,8")
    parser.add_argument("-m", default="2,4,8,16")
    return parser.parse_args()


if __name__ == "__main__":
    main()
