"""A small job that keeps the shape of some plans, for machines that cannot run the job itself.

    searched   tp8 pp4 dp32 mb3 m16 interleaved_1f1b v8     GPT-3 175B, 1,024 A100s
    twin       tp2 pp4 dp1  mb3 m8  interleaved_1f1b v8     32 layers of width 256, 8 ranks

All plans are divided alike, so that their twins train one job: replicas first, then tensor and
context ranks, by what all plans have in common, until `MOST_RANKS` hold them; then micro-batches,
of which a pipeline keeps at least two a rank. Pipelines, chunks, schedules, micro-batch size,
recomputation and ZeRO stage stay.

Leaves out: what a step on the searched hardware is made of. A twin shows whether predicted and
measured order agree where they can be compared, and that the plans run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import gcd

from parsim.errors import PlanError
from parsim.model.transformer import TransformerSpec
from parsim.plan import Plan
from parsim.plan.rules.degrees import divisors
from parsim.scenario import Scenario

MOST_RANKS = 8
"""Ranks of a twin at the most: they share this machine's cores."""
HEAD_DIM = 32
WIDTH = 256
"""Width of a twin at the least: of a narrower one, the host's overhead is all that is timed."""
SEQUENCE = 128
VOCABULARY = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Twin:
    """The overrides that make a scenario small, and the plans in its size, in their order."""

    overrides: dict[str, object]
    plans: tuple[Plan, ...]
    words: str


def twin_of(scenario: Scenario, plans: Sequence[Plan]) -> Twin:
    """A job on this machine's cores, and each plan in its size.

    Raises:
        InputError: the model is a graph of operations.
        PlanError: what the plans have in common leaves more than `MOST_RANKS` ranks.
    """
    spec, small = scenario.spec, _fewer_microbatches(_fewer_ranks(plans))
    ranks = small[0].world_size
    model = dict(_model(spec, small))
    overrides: dict[str, object] = {
        **{f"model.{name}": value for name, value in model.items()},
        "cluster": {"system": "cpu", "nodes": 1, "devices_per_node": ranks},
        "software": "executor-cpu",
        "training.precision": "fp32",
        "training.global_batch_size": small[0].global_batch_size,
        "plan": None,
        "search": {},
    }
    words = (
        f"{model['num_layers']} of {spec.num_layers} layers, width {model['hidden_size']} of "
        f"{spec.hidden_size}, {SEQUENCE} tokens, on {ranks} ranks over gloo instead of "
        f"{plans[0].world_size}"
    )
    return Twin(overrides=overrides, plans=tuple(small), words=words)


def _fewer_ranks(plans: Sequence[Plan]) -> list[Plan]:
    """Plans divided alike along dp, tp and cp until few ranks hold them."""
    small = [replace(plan, precision="fp32", stage_layers=None) for plan in plans]
    for axis in ("dp", "tp", "cp"):
        while small[0].world_size > MOST_RANKS:
            common = gcd(*(getattr(plan, axis) for plan in small))
            if common == 1:
                break
            small = [_divided(plan, axis, divisors(common)[1]) for plan in small]
    if small[0].world_size > MOST_RANKS:
        raise PlanError(
            f"the best plans have no common twin of {MOST_RANKS} ranks: divided alike they still "
            f"need {small[0].world_size}; measure fewer plans, or pin degrees in the search block"
        )
    return [_kept_legal(plan) for plan in small]


def _divided(plan: Plan, axis: str, factor: int) -> Plan:
    """A plan with one axis divided; of replicas those without shards first."""
    if axis != "dp":
        return replace(plan, **{axis: getattr(plan, axis) // factor})
    name = "dp_replicate" if plan.dp_replicate % factor == 0 else "dp_shard"
    return replace(plan, **{name: getattr(plan, name) // factor})


def _kept_legal(plan: Plan) -> Plan:
    """A plan without what has lost its ranks: shards, split sequences, experts' ranks."""
    sharded = plan.zero_stage if plan.dp * plan.cp > 1 else 0
    return replace(
        plan,
        zero_stage=sharded,
        dp_replicate=plan.dp_replicate if sharded else plan.dp,
        dp_shard=plan.dp_shard if sharded else 1,
        sequence_parallel=plan.sequence_parallel and plan.tp > 1,
        ep=gcd(plan.ep, plan.stage_ranks),
        etp=1,
    )


def _fewer_microbatches(plans: Sequence[Plan]) -> list[Plan]:
    """The plans with a common part of their micro-batches."""
    shares = divisors(gcd(*(plan.num_microbatches for plan in plans)))
    share = max(share for share in shares if all(_enough(plan, share) for plan in plans))
    return [replace(plan, num_microbatches=plan.num_microbatches // share) for plan in plans]


def _enough(plan: Plan, share: int) -> bool:
    """Whether a pipeline still has two micro-batches a rank, in whole rounds where it had them."""
    left, usual = plan.num_microbatches // share, plan.num_microbatches
    rounds = usual % plan.pp != 0 or left % plan.pp == 0
    return rounds and left >= min(usual, 2 * plan.pp)


def _model(spec: TransformerSpec, plans: Sequence[Plan]) -> Iterator[tuple[str, int]]:
    """Sizes of the model: a layer a stage, as few heads as the widest tensor group splits."""
    widest = max(plan.tp for plan in plans)
    heads = widest * max(2, -(-WIDTH // (widest * HEAD_DIM)))
    layers = max(plan.num_stages for plan in plans)
    yield ("num_layers", min(spec.num_layers, max(2, layers)))
    yield ("num_attention_heads", heads)
    yield ("num_key_value_heads", heads)
    yield ("head_dim", HEAD_DIM)
    yield ("hidden_size", heads * HEAD_DIM)
    yield ("ffn_hidden_size", heads * HEAD_DIM * spec.ffn_hidden_size // spec.hidden_size)
    yield ("vocab_size", VOCABULARY)
    yield ("seq_len", SEQUENCE)
