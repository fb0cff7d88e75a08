"""What Megatron-LM refuses of parsim's plans.

Rules: exactly one way to say virtual stages; sequences divisible by 2 x context parallelism;
interleaving without overlapped messages needs pp > 2; ZeRO-2 and 3 are Megatron-FSDP's, which
parsim writes without pipelines only.
"""

from __future__ import annotations

from parsim.cost.step.stages import plan_cut
from parsim.frameworks.export.rules import Rules, no_sharded_pipeline, schedule_name
from parsim.model.transformer import TransformerSpec
from parsim.plan import RANK_ORDER, REPLICAS_OUTSIDE, Plan, Recompute
from parsim.plan.names import REGION_MODULES

SCHEDULES = ("1f1b", "interleaved_1f1b")


def megatron_rules(spec: TransformerSpec, plan: Plan) -> Rules:
    """Rules of Megatron-LM that parsim's plans can break."""
    yield _known_schedule(plan)
    yield no_sharded_pipeline(plan)
    yield (
        plan.cp > 1 and spec.seq_len % (2 * plan.cp) != 0,
        f"seq_len={spec.seq_len} is not divisible by 2 x cp={2 * plan.cp}",
    )
    yield _interleaved_pair(plan)
    yield _known_order(plan)
    yield (
        plan.overlap_param_gather and not plan.overlap_grad_reduce and plan.zero_stage > 0,
        "overlap_param_gather needs overlap_grad_reduce",
    )
    yield _known_modules(plan)
    yield _one_recomputation(plan)
    yield from _offload_rules(spec, plan)
    yield _optimizer_on_host(plan)


def _known_schedule(plan: Plan) -> tuple[bool, str]:
    """The rule that pipelines run one of two schedules."""
    return (
        plan.pp > 1 and (plan.actions is not None or plan.schedule not in SCHEDULES),
        f"schedule {schedule_name(plan)}; it has {' and '.join(SCHEDULES)}",
    )


def _interleaved_pair(plan: Plan) -> tuple[bool, str]:
    """The rule that two ranks interleave with overlapped messages alone."""
    return (
        plan.schedule == "interleaved_1f1b" and plan.pp == 2 and not plan.overlap_p2p,
        "interleaving with pp=2 needs overlapped messages; set overlap_p2p=true or use pp > 2",
    )


def _optimizer_on_host(plan: Plan) -> tuple[bool, str]:
    """The rule that the optimizer on the host is the distributed one."""
    return (
        plan.optimizer_offload and plan.zero_stage != 1,
        f"optimizer_offload=true with zero_stage={plan.zero_stage}; its --optimizer-cpu-offload is "
        f"the distributed optimizer's, use zero_stage=1",
    )


def _known_order(plan: Plan) -> tuple[bool, str]:
    """The rule that ranks are laid out in one of two orders."""
    return (
        plan.rank_order not in (RANK_ORDER, REPLICAS_OUTSIDE),
        f"rank_order={'-'.join(plan.rank_order)}; it has {'-'.join(RANK_ORDER)} and "
        f"{'-'.join(REPLICAS_OUTSIDE)}",
    )


def _known_modules(plan: Plan) -> tuple[bool, str]:
    """The rule that modules are recomputed which Megatron-LM has a name for."""
    unknown = [name for name in plan.recompute_modules if name in REGION_MODULES]
    return (
        bool(unknown),
        f"recompute_modules={'+'.join(unknown)}; its --recompute-modules has no such module",
    )


def _one_recomputation(plan: Plan) -> tuple[bool, str]:
    """The rule that whole layers or parts of all are recomputed, not both."""
    return (
        plan.recompute_layers > 0 and _repeats(plan),
        f"recompute_layers={plan.recompute_layers} beside selective recomputation of the other "
        f"layers; it has one or the other, use recompute=none without recompute_modules",
    )


def _repeats(plan: Plan) -> bool:
    """Whether all layers are recomputed, or some of their parts."""
    return plan.recompute is not Recompute.NONE or bool(plan.recompute_modules)


def _offload_rules(spec: TransformerSpec, plan: Plan) -> Rules:
    """Rules of Megatron-Core's two ways to move activations to the host."""
    layers, modules = plan.offload_layers, plan.offload_modules
    whole, rest, again = layers > 0 and not modules, spec.num_layers - 1, _repeats(plan)
    yield (
        whole and (plan.pp > 1 or again),
        f"offload_layers={layers} of whole layers beside a pipeline or recomputation, which its "
        f"--cpu-offloading forbids; name offload_modules",
    )
    yield (
        whole and layers > rest,
        f"offload_layers={layers}; its --cpu-offloading-num-layers is at most {rest}",
    )
    most = max(plan_cut(plan, spec.num_layers))
    yield (
        bool(modules) and layers < most,
        f"offload_modules of {layers} layers of a stage; it moves those of all: "
        f"offload_layers={most}",
    )
    yield ("mlp" in modules, "offload_modules=mlp, which is no name of its own; leave it out")
