"""Bytes of a stage that has one micro-batch in flight, from a plan whose stages are all equal.

Beside what a stage keeps of a micro-batch, whose input is among that, it holds one gradient from
behind. Ranks of their own pace receive an input when they need it, not ahead of that, and hold no
output that has arrived.

Where each backward is an update, no gradients of earlier ones stand beside it: it is highest
where it begins, with its logits and what was kept, or where it ends, with all of its gradients.
"""

from __future__ import annotations

from collections.abc import Mapping

from parsim.cost.job import Job
from parsim.plan import Plan
from parsim.plan.names import WITHOUT_FLUSH
from parsim.schedule.inflight import inflight_counts
from parsim.sim.memory.eager_kept import sent_messages
from parsim.sim.recurrence.evaluate import Evaluation


def updates_each(plan: Plan) -> bool:
    """Whether each backward is followed by an update of its stage."""
    return plan.schedule in WITHOUT_FLUSH and plan.schedule != "pipedream_2bw"


def one_in_flight(job: Job, evaluation: Evaluation, number: int) -> dict[str, float]:
    """Bytes of a stage by category, with the activations of one micro-batch."""
    schedule = evaluation.step.schedule(0)
    counts = [max(map(sum, rank)) for rank in inflight_counts(schedule)]
    use = evaluation.memory_of(0).at(number, 0)
    alone = {**use, "activations": use["activations"] / counts[number]}
    if not job.software.eager:
        return alone
    sent = sent_messages(job, evaluation.step.pricing.table)[:, 0]
    before = float(sent[number - 1]) if number else 0.0
    behind = float(sent[number]) if number < len(sent) - 1 else 0.0
    alone["communication"] -= before + counts[number] * behind
    return alone


def highest_alone(use: Mapping[str, float]) -> Mapping[str, float]:
    """Bytes at the highest moment of a backward whose gradients are the only ones.

    A gradient on its way to be added to an earlier one is then that gradient itself.
    """
    begins = {**use, "gradients": 0.0}
    ends = {**use, "activations": 0.0, "logits": 0.0, "temporary": 0.0}
    return max(begins, ends, key=lambda moment: sum(moment.values()))
